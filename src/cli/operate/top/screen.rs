//! The terminal of `weir top`: one thread asks Weir, one waits for signals, and this one draws and reads keys.

use std::io;
use std::panic;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::super::target::Target;
use super::figures::Figures;
use super::view::View;
use crate::cli::output::{Exit, fail};

/// The time in which a change is drawn.
const TICK: Duration = Duration::from_millis(100);

type Screen = Terminal<CrosstermBackend<io::Stdout>>;

/// A message to the thread that draws.
enum Message {
    Figures(Box<Result<Figures, String>>),
    /// A signal ends the command.
    Stop,
}

/// Shows the screen until the user or a signal ends it. The terminal is as before afterwards, also after a panic.
pub(super) fn run(target: Target, view: View, every: Duration) -> Exit {
    let admin = target.address()?;
    let place = admin.to_string();
    let (messages, inbox) = channel();
    watch_signals(messages.clone()).map_err(|error| fail(&format_args!("cannot take signals: {error}")))?;
    // It ends with the process.
    thread::spawn(move || {
        while messages.send(Message::Figures(Box::new(Figures::read(&target, &admin)))).is_ok() {
            thread::sleep(every);
        }
    });
    let shown = open().and_then(|mut terminal| show(&mut terminal, view, (&inbox, &place)));
    restore();
    shown.map_err(|error| fail(&format_args!("the terminal: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

/// The terminal with a screen of its own, in raw mode. A panic restores it first, so that its message can be read.
fn open() -> io::Result<Screen> {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore();
        report(info);
    }));
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    Terminal::new(CrosstermBackend::new(io::stdout()))
}

/// Restores the terminal as far as possible.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen);
}

/// Sends [`Message::Stop`] after SIGTERM, SIGHUP or SIGINT. In raw mode Ctrl-C is a key and no signal.
fn watch_signals(messages: Sender<Message>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let [mut term, mut hangup, mut interrupt] = {
        let _inside = runtime.enter();
        [signal(SignalKind::terminate())?, signal(SignalKind::hangup())?, signal(SignalKind::interrupt())?]
    };
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = term.recv() => {}
                _ = hangup.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        messages.send(Message::Stop)
    });
    Ok(())
}

fn show(terminal: &mut Screen, mut view: View, (inbox, place): (&Receiver<Message>, &str)) -> io::Result<()> {
    let mut has_changed = true;
    loop {
        for message in inbox.try_iter() {
            match message {
                Message::Figures(figures) => view.show(*figures),
                Message::Stop => return Ok(()),
            }
            has_changed = true;
        }
        if std::mem::take(&mut has_changed) {
            terminal.draw(|frame| view.draw(frame, place))?;
        }
        if event::poll(TICK)? {
            // A change of the size is drawn, too.
            has_changed = true;
            if let Event::Key(key) = event::read()?
                && press(&mut view, key)
            {
                return Ok(());
            }
        }
    }
}

/// Handles a key. Returns whether it ends the command.
fn press(view: &mut View, KeyEvent { code, modifiers, kind, .. }: KeyEvent) -> bool {
    if kind == KeyEventKind::Release {
        return false;
    }
    if code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL) {
        return true;
    }
    if view.is_filtering {
        match code {
            KeyCode::Char(character) => view.filter.push(character),
            KeyCode::Backspace => _ = view.filter.pop(),
            KeyCode::Enter => view.is_filtering = false,
            KeyCode::Esc => (view.is_filtering, view.filter) = (false, String::new()),
            _ => {}
        }
        return false;
    }
    match code {
        KeyCode::Char('q') => return true,
        KeyCode::Char('s') => view.sort_next(),
        KeyCode::Char('n') => view.rank_next(),
        KeyCode::Char('p' | ' ') => view.is_paused = !view.is_paused,
        KeyCode::Char('/') => view.is_filtering = true,
        KeyCode::Esc => view.filter.clear(),
        _ => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::view::Ranked;
    use super::*;

    #[test]
    fn keys_sort_filter_pause_and_quit() {
        let mut view = View::default();
        let typed = |view: &mut View, code| press(view, KeyEvent::from(code));
        for key in "/sq".chars() {
            assert!(!typed(&mut view, KeyCode::Char(key)));
        }
        assert!(view.is_filtering && view.filter == "sq");
        for key in [KeyCode::Backspace, KeyCode::Enter, KeyCode::Char('p'), KeyCode::Char('n')] {
            assert!(!typed(&mut view, key));
        }
        assert!(!view.is_filtering && view.is_paused && view.filter == "s" && view.by == Ranked::Network);
        assert!(!typed(&mut view, KeyCode::Esc) && view.filter.is_empty());
        assert!(typed(&mut view, KeyCode::Char('q')));
        assert!(press(&mut view, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }
}
