//! A client of Redis that is independent of Weir's: RESP2 over the Unix socket of a server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::support::PATIENCE;

/// A reply of Redis. Bytes that are not UTF-8 are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Nil,
    Integer(i64),
    Text(String),
    List(Vec<Reply>),
    Error(String),
}

impl Reply {
    /// The text of a string.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("no text: {other:?}"),
        }
    }

    /// The texts of a list.
    pub fn texts(&self) -> Vec<&str> {
        match self {
            Self::List(items) => items.iter().map(Self::text).collect(),
            other => panic!("no list: {other:?}"),
        }
    }

    /// The number in an integer or a string.
    pub fn number(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => other.text().parse().unwrap(),
        }
    }
}

/// A connection. Each call waits for its reply, for at most [`PATIENCE`].
pub struct Session {
    reader: BufReader<UnixStream>,
}

impl Session {
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sends a command, and returns its reply.
    pub fn call(&mut self, words: &[&str]) -> io::Result<Reply> {
        let mut bytes = Vec::new();
        write!(bytes, "*{}\r\n", words.len())?;
        for word in words {
            write!(bytes, "${}\r\n{word}\r\n", word.len())?;
        }
        self.reader.get_mut().write_all(&bytes)?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse().map_err(|_| io::Error::other(line.clone()));
        Ok(match kind {
            "+" => Reply::Text(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Integer(number()?),
            _ if number()? < 0 => Reply::Nil,
            "*" => Reply::List((0..number()?).map(|_| self.reply()).collect::<io::Result<_>>()?),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().map_err(io::Error::other)? + 2];
                self.reader.read_exact(&mut bytes)?;
                Reply::Text(String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned())
            }
            _ => return Err(io::Error::other(line)),
        })
    }
}
