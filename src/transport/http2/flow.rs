//! Flow-control windows (RFC 9113, section 5.2).

/// The largest window (RFC 9113, section 6.9.1).
pub(super) const WINDOW_MAX: u32 = 0x7fff_ffff;

/// The size of every window at first (RFC 9113, section 6.9.2).
pub(super) const WINDOW_INITIAL: u32 = 65_535;

/// A window that grew beyond [`WINDOW_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow;

/// The bytes of DATA that the peer accepts. A changed setting may make it negative.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWindow(i64);

impl SendWindow {
    pub(super) fn new(size: u32) -> Self {
        Self(size.into())
    }

    /// Bytes that may be sent now.
    pub(super) fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Bytes were sent; at most those available.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.0 -= i64::try_from(bytes).unwrap_or(i64::MAX);
    }

    /// Changes the size by `change` bytes.
    pub(super) fn change(&mut self, change: i64) -> Result<(), Overflow> {
        self.0 += change;
        if self.0 > WINDOW_MAX.into() { Err(Overflow) } else { Ok(()) }
    }
}

/// The bytes of DATA that Weir accepts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveWindow {
    /// Bytes that the peer may still send.
    available: u32,
    /// Bytes that were consumed and are not announced to the peer.
    unannounced: u32,
    size: u32,
}

impl ReceiveWindow {
    pub(super) fn new(size: u32) -> Self {
        Self { available: size, unannounced: 0, size }
    }

    /// Bytes have come.
    pub(super) fn receive(&mut self, bytes: usize) -> Result<(), Overflow> {
        let bytes = u32::try_from(bytes).map_err(|_| Overflow)?;
        self.available = self.available.checked_sub(bytes).ok_or(Overflow)?;
        Ok(())
    }

    /// Bytes that came were consumed. Returns the increment to announce, if it is worth a frame. The window then has
    /// `size` bytes, if that is more than before.
    pub(super) fn consume(&mut self, bytes: usize, size: u32) -> Option<u32> {
        self.unannounced = self.unannounced.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.unannounced < self.size / 2 {
            return None;
        }
        let increment = self.unannounced + size.saturating_sub(self.size);
        self.size = self.size.max(size);
        self.available = self.available.saturating_add(increment);
        self.unannounced = 0;
        Some(increment)
    }

    /// Bytes that came and were not consumed.
    pub(super) fn unconsumed(&self) -> usize {
        (self.size - self.available - self.unannounced) as usize
    }

    /// Enlarges the window to `size`. Returns the increment to announce.
    pub(super) fn enlarge(&mut self, size: u32) -> u32 {
        let increment = size.saturating_sub(self.size);
        self.size += increment;
        self.available += increment;
        increment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_window_may_be_negative_but_not_too_large() {
        let mut window = SendWindow::new(10);
        window.spend(10);
        assert_eq!((window.available(), window.change(-5), window.available()), (0, Ok(()), 0));
        assert_eq!((window.change(6), window.available()), (Ok(()), 1));
        assert_eq!(window.change(i64::from(WINDOW_MAX) - 1), Ok(()));
        assert_eq!(window.change(1), Err(Overflow));
    }

    #[test]
    fn a_receive_window_is_announced_by_halves_and_grows() {
        let mut window = ReceiveWindow::new(100);
        assert_eq!((window.receive(60), window.receive(41)), (Ok(()), Err(Overflow)));
        assert_eq!((window.consume(49, 400), window.consume(1, 400)), (None, Some(350)));
        // 40 of the first 100, 350 more; 10 are not consumed.
        assert_eq!((window.receive(391), window.receive(390)), (Err(Overflow), Ok(())));
        assert_eq!((window.consume(199, 400), window.consume(1, 400)), (None, Some(200)));
        assert_eq!(window.unconsumed(), 200);
        assert_eq!((window.enlarge(500), window.receive(300), window.receive(1)), (100, Ok(()), Err(Overflow)));
    }

    #[test]
    fn more_than_a_number_is_too_much() {
        assert_eq!(ReceiveWindow::new(WINDOW_MAX).receive(usize::MAX), Err(Overflow));
    }
}
