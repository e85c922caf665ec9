//! Against another implementation: the client of the `h2` crate gets back what it sends.

use bytes::Bytes;
use http::{HeaderMap, Request};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::base::fields::FieldBuf;

/// A request, and as much as came of it.
#[derive(Default)]
struct Echo {
    key: Option<Key>,
    fields: FieldBuf,
    body: Vec<u8>,
    sent: usize,
    has_ended: bool,
    is_answered: bool,
}

/// Answers each request with its fields, its body, and a trailer that says how long that was.
async fn echo(mut io: DuplexStream) {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut connection = Connection::<Echo>::new(Config { max_streams: 100, ..CONFIG }, &mut out);
    loop {
        answer(&mut connection, &mut out);
        io.write_all(&out).await.unwrap();
        out.clear();
        if !matches!(io.read_buf(&mut input).await, Ok(1..)) {
            return;
        }
        let mut at = 0;
        loop {
            let Step { consumed, event } = connection.receive(&input[at..], &mut out).unwrap();
            if consumed == 0 && event.is_none() {
                break;
            }
            match event {
                Some(Event::Head { key, head, has_ended }) => {
                    assert_eq!(head.fault, None);
                    let fields = head.fields().iter().collect();
                    *connection.get_mut(key).unwrap() = Echo { key: Some(key), fields, has_ended, ..Echo::default() };
                }
                Some(Event::Data { key, data, has_ended }) => {
                    let echo = connection.get_mut(key).unwrap();
                    echo.body.extend_from_slice(data);
                    echo.has_ended = has_ended;
                    connection.consume(key, data.len(), &mut out);
                }
                Some(Event::Trailers { .. } | Event::Reset { .. }) => panic!("nobody sends these"),
                _ => {}
            }
            at += consumed;
        }
        input.drain(..at);
    }
}

fn answer(connection: &mut Connection<Echo>, out: &mut Vec<u8>) {
    let ended: Vec<_> = connection.owners_mut().filter(|echo| echo.has_ended).filter_map(|echo| echo.key).collect();
    for key in ended {
        let mut echo = std::mem::take(connection.get_mut(key).unwrap());
        if !std::mem::replace(&mut echo.is_answered, true) {
            connection.write_head(key, out, 200, false, |block| {
                echo.fields.fields().iter().for_each(|(name, value)| block.field(name, value));
            });
        }
        echo.sent += connection.write_data(key, out, &echo.body[echo.sent..], usize::MAX, false);
        if echo.sent == echo.body.len() {
            let len = echo.sent.to_string();
            connection.write_trailers(key, out, |block| block.field(b"x-len", len.as_bytes()));
            connection.release(key, out);
        } else {
            *connection.get_mut(key).unwrap() = echo;
        }
    }
}

/// A request of a client: field values, and its body.
type Call = (Vec<String>, Vec<u8>);

/// Sends the body as the windows allow, and reads the answer.
async fn call(send: h2::client::SendRequest<Bytes>, (values, body): Call) {
    let mut request = Request::post("http://a/");
    for (at, value) in values.iter().enumerate() {
        request = request.header(format!("x-{at}"), value);
    }
    let mut send = send.ready().await.unwrap();
    let (response, mut sink) = send.send_request(request.body(()).unwrap(), false).unwrap();
    sink.send_data(body.clone().into(), true).unwrap();
    let (head, mut source) = response.await.unwrap().into_parts();
    let expected: HeaderMap = values
        .iter()
        .enumerate()
        .map(|(at, value)| (format!("x-{at}").parse().unwrap(), value.trim_matches([' ', '\t']).parse().unwrap()))
        .collect();
    assert_eq!(head.headers, expected);
    let mut got = Vec::new();
    while let Some(data) = source.data().await {
        let data = data.unwrap();
        got.extend_from_slice(&data);
        source.flow_control().release_capacity(data.len()).unwrap();
    }
    assert!(got == body);
    let trailers = source.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["x-len"], body.len().to_string());
}

async fn calls(window: u32, table: u32, calls: Vec<Call>) {
    let (client, server) = duplex(10_000);
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).header_table_size(table);
    let all = async {
        let (send, connection) = builder.handshake::<_, Bytes>(client).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for one in calls {
            tasks.spawn(call(send.clone(), one));
        }
        drop(send);
        let done = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::select! {
            ended = connection => ended.unwrap(),
            () = done => {}
        }
        while tasks.join_next().await.transpose().unwrap().is_some() {}
    };
    tokio::select! {
        () = echo(server) => {}
        () = all => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn another_client_gets_back_what_it_sends(
        window in 1000_u32..100_000,
        table in 0_u32..10_000,
        requests in prop::collection::vec(
            (prop::collection::vec("[ -~]{0,60}", 0..8), prop::collection::vec(any::<u8>(), 0..3)
                .prop_flat_map(|seed| (0_usize..70_000).prop_map(move |len| seed.iter().copied().cycle().take(len).collect()))),
            1..20,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let in_time = tokio::time::timeout(std::time::Duration::from_mins(1), calls(window, table, requests));
            in_time.await.expect("in time");
        });
    }
}
