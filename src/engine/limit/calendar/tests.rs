//! The ends of windows by date; windows neither overlap nor leave gaps.

use proptest::prelude::*;

use super::CalendarError::{TooLong, UnknownZone, Zero};
use super::{Calendar, Unit};
use crate::base::time::Timestamp;
use crate::engine::limit::tests::at;

#[test]
fn lengths() {
    for (unit, every, zone, at_text, hours) in [
        (Unit::Hour, 7, "UTC", "2024-05-05T22:00:00Z", 7), // the last one of a day has 3
        (Unit::Day, 1, "UTC", "2024-05-05T22:00:00Z", 24),
        (Unit::Day, 1, "Europe/Berlin", "2024-03-31T00:00:00+01:00", 23),
        (Unit::Day, 1, "Europe/Berlin", "2024-10-27T23:59:59+01:00", 25),
        (Unit::Day, 2, "UTC", "2024-05-05T22:00:00Z", 48),
        (Unit::Week, 1, "Europe/Berlin", "2024-10-27T00:00:00+02:00", 7 * 24 + 1),
        (Unit::Month, 1, "UTC", "2024-02-29T00:00:00Z", 29 * 24),
        (Unit::Month, 1, "Europe/Berlin", "2024-10-01T00:00:00+02:00", 31 * 24 + 1),
        (Unit::Month, 12, "UTC", "2024-07-01T00:00:00Z", 366 * 24),
    ] {
        let calendar = Calendar::new(unit, every, zone).unwrap();
        assert_eq!(calendar.window_ns(at(at_text)), hours * 3_600_000_000_000, "{at_text} {zone}");
    }
}

#[test]
fn ends() {
    let rows = [
        (Unit::Millisecond, 250, "UTC", "2024-05-05T12:00:00.3Z", "2024-05-05T12:00:00.5Z"),
        (Unit::Second, 1, "UTC", "2024-05-05T12:00:00Z", "2024-05-05T12:00:01Z"),
        (Unit::Minute, 15, "UTC", "2024-05-05T12:14:59Z", "2024-05-05T12:15:00Z"),
        // Zones whose offset is not in whole hours
        (Unit::Hour, 1, "UTC", "2024-05-05T12:20:00Z", "2024-05-05T13:00:00Z"),
        (Unit::Hour, 1, "Asia/Kathmandu", "2024-05-05T12:20:00+05:45", "2024-05-05T13:00:00+05:45"),
        // The last window of a day ends with it
        (Unit::Hour, 7, "UTC", "2024-05-05T22:00:00Z", "2024-05-06T00:00:00Z"),
        (Unit::Day, 1, "Asia/Tokyo", "2024-05-05T23:00:00+09:00", "2024-05-06T00:00:00+09:00"),
        // A day of 23 hours, hours in it, and a day of 25
        (Unit::Day, 1, "Europe/Berlin", "2024-03-31T00:00:00+01:00", "2024-04-01T00:00:00+02:00"),
        (Unit::Hour, 1, "Europe/Berlin", "2024-03-31T01:30:00+01:00", "2024-03-31T03:00:00+02:00"),
        (Unit::Hour, 6, "Europe/Berlin", "2024-03-31T01:30:00+01:00", "2024-03-31T07:00:00+02:00"),
        (Unit::Hour, 1, "Europe/Berlin", "2024-10-27T02:30:00+02:00", "2024-10-27T02:00:00+01:00"),
        (Unit::Hour, 1, "Europe/Berlin", "2024-10-27T02:30:00+01:00", "2024-10-27T03:00:00+01:00"),
        (Unit::Day, 1, "Europe/Berlin", "2024-10-27T02:30:00+02:00", "2024-10-28T00:00:00+01:00"),
        // A midnight that does not exist: the day begins at one
        (Unit::Day, 1, "America/Santiago", "2024-09-07T12:00:00-04:00", "2024-09-08T01:00:00-03:00"),
        // A day that does not exist
        (Unit::Day, 1, "Pacific/Apia", "2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00"),
        // Weeks begin on Monday
        (Unit::Week, 1, "UTC", "2024-05-05T23:59:59Z", "2024-05-06T00:00:00Z"),
        (Unit::Week, 1, "UTC", "2024-05-06T00:00:00Z", "2024-05-13T00:00:00Z"),
        (Unit::Month, 1, "UTC", "2024-02-28T12:00:00Z", "2024-03-01T00:00:00Z"),
        (Unit::Month, 3, "UTC", "2024-05-05T12:00:00Z", "2024-07-01T00:00:00Z"),
        (Unit::Month, 12, "UTC", "2024-05-05T12:00:00Z", "2025-01-01T00:00:00Z"),
        (Unit::Month, 1, "America/New_York", "2024-12-31T23:59:59-05:00", "2025-01-01T00:00:00-05:00"),
    ];
    for (unit, every, zone, now, end) in rows {
        assert_eq!(Calendar::new(unit, every, zone).unwrap().end(at(now)), at(end), "{every} {unit:?} {zone} {now}");
    }
}

#[test]
fn end_after_counts_windows() {
    let days = Calendar::new(Unit::Day, 1, "Europe/Berlin").unwrap();
    let first = at("2024-03-31T00:00:00+01:00");
    assert_eq!(days.end_after(first, 0), first);
    assert_eq!(days.end_after(first, 2), at("2024-04-02T00:00:00+02:00"));
    let seconds = Calendar::new(Unit::Second, 1, "UTC").unwrap();
    assert_eq!(seconds.end_after(first, 5000), first.saturating_add_ns(5_000_000_000_000));
}

/// Snapshots contain these numbers: a window survives a restart only if the number of its calendar is unchanged.
#[test]
fn equal_calendars_have_one_number() {
    for (unit, every, zone, id) in [
        (Unit::Millisecond, 1, "UTC", 0x683d_90a8_b232_48f4),
        (Unit::Second, 1, "UTC", 0x6dd7_50b1_cd1b_5be5),
        (Unit::Day, 1, "UTC", 0x33a3_5c84_af6c_cfa0),
        (Unit::Day, 7, "UTC", 0x23ed_6f96_b78f_e572),
        (Unit::Week, 1, "UTC", 0x393c_9c8d_ca55_0911),
        (Unit::Month, 1, "Europe/Berlin", 0x3a0e_e97c_51e3_0b4f),
        (Unit::Month, 1, "Asia/Tokyo", 0x8c4a_6cda_a67e_78ff),
    ] {
        let calendar = Calendar::new(unit, every, zone).unwrap();
        assert_eq!((calendar.id(), calendar.clone().id()), (id, id), "{every} {unit:?} {zone}");
    }
}

#[test]
fn calendars_that_cannot_be() {
    let rows = [
        (Unit::Day, 0, "UTC", Zero),
        (Unit::Hour, 25, "UTC", TooLong),
        (Unit::Month, 13, "UTC", TooLong),
        (Unit::Day, 1, "Europe/Nowhere", UnknownZone),
    ];
    for (unit, every, zone, error) in rows {
        assert_eq!(Calendar::new(unit, every, zone).err(), Some(error), "{every} {unit:?} {zone}");
    }
}

#[test]
fn ends_of_time() {
    for unit in [Unit::Millisecond, Unit::Hour, Unit::Day, Unit::Week, Unit::Month] {
        for zone in ["UTC", "Europe/Berlin", "Pacific/Apia"] {
            let calendar = Calendar::new(unit, 1, zone).unwrap();
            assert!(calendar.end(Timestamp::ZERO) > Timestamp::ZERO);
            assert!(calendar.end(Timestamp::from_ns(u64::MAX)) >= Timestamp::from_ns(u64::MAX - 1));
        }
    }
}

proptest! {
    /// Every instant of a window agrees on its end, and the next window begins there.
    #[test]
    fn windows_neither_overlap_nor_leave_a_gap(
        from_s in 0_u64..4_000_000_000, part in 0_u64..1000,
        (unit, every) in prop_oneof![
            Just((Unit::Second, 7)), Just((Unit::Minute, 15)), Just((Unit::Hour, 1)), Just((Unit::Hour, 5)), Just((Unit::Day, 1)),
            Just((Unit::Day, 3)), Just((Unit::Week, 2)), Just((Unit::Month, 1)), Just((Unit::Month, 5)),
        ],
        zone in prop_oneof![
            Just("UTC"), Just("Europe/Berlin"), Just("America/Havana"), Just("America/Santiago"), Just("Africa/Cairo"),
            Just("Australia/Lord_Howe"), Just("Pacific/Apia"), Just("Asia/Beirut"), Just("America/St_Johns"),
        ],
    ) {
        let calendar = Calendar::new(unit, every, zone).unwrap();
        let mut now = Timestamp::from_ns(from_s * 1_000_000_000);
        for _ in 0..4 {
            let end = calendar.end(now);
            prop_assert!(end > now);
            prop_assert!(end.ns_since(now) <= calendar.nominal_ns() / 10 * 11 + 25 * 3_600_000_000_000);
            let between = now.saturating_add_ns(end.ns_since(now) / 1000 * part);
            prop_assert_eq!(calendar.end(between), end);
            prop_assert_eq!(calendar.end(end.saturating_sub_ns(1)), end);
            now = end;
        }
    }
}

#[test]
fn windows_in_a_window() {
    let calendar = |(unit, every, zone)| Calendar::new(unit, every, zone).unwrap();
    for (own, other, most) in [
        ((Unit::Minute, 1, "UTC"), (Unit::Hour, 1, "UTC"), Some(60)),
        ((Unit::Minute, 7, "UTC"), (Unit::Hour, 1, "UTC"), None),
        ((Unit::Hour, 1, "UTC"), (Unit::Minute, 1, "UTC"), None),
        ((Unit::Hour, 1, "UTC"), (Unit::Hour, 1, "UTC"), Some(1)),
        ((Unit::Hour, 1, "UTC"), (Unit::Hour, 2, "Europe/Berlin"), None),
        ((Unit::Hour, 1, "UTC"), (Unit::Day, 1, "UTC"), Some(24)),
        ((Unit::Hour, 7, "UTC"), (Unit::Week, 1, "UTC"), Some(28)),
        ((Unit::Hour, 1, "Europe/Berlin"), (Unit::Day, 2, "Europe/Berlin"), Some(50)),
        ((Unit::Day, 1, "Europe/Berlin"), (Unit::Month, 1, "Europe/Berlin"), Some(31)),
        ((Unit::Week, 1, "UTC"), (Unit::Month, 1, "UTC"), None),
    ] {
        assert_eq!(calendar(own).most_within(&calendar(other)), most, "{own:?} {other:?}");
    }
}
