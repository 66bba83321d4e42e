//! When a certificate ends: the one field of X.509 that the TLS library does not tell.
//!
//! ```text
//! Certificate ::= SEQ { tbs ::= SEQ { [0] version?, serial, algorithm, issuer, validity ::= SEQ { from, to } ..
//! ```
//! Bytes from outside: anything that is not so gives `None`.

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Unix seconds after which a DER certificate is not valid any more.
pub fn not_after(der: &[u8]) -> Option<i64> {
    let (certificate, _) = inside(der, SEQUENCE)?;
    let (mut tbs, _) = inside(certificate, SEQUENCE)?;
    if tbs.first() == Some(&VERSION) {
        tbs = element(tbs)?.2;
    }
    for _serial_algorithm_issuer in 0..3 {
        tbs = element(tbs)?.2;
    }
    let (validity, _) = inside(tbs, SEQUENCE)?;
    let (_, _, rest) = element(validity)?;
    let (tag, time, _) = element(rest)?;
    unix_seconds(tag, std::str::from_utf8(time).ok()?)
}

fn inside(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(der)?;
    (found == tag).then_some((content, rest))
}

/// Tag, content, and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut len = usize::from(first);
    if first & 0x80 != 0 {
        let bytes = usize::from(first & 0x7f);
        if !(1..=4).contains(&bytes) || rest.len() < bytes {
            return None;
        }
        len = rest[..bytes].iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        rest = &rest[bytes..];
    }
    (len <= rest.len()).then(|| (tag, &rest[..len], &rest[len..]))
}

/// YYMMDDhhmmssZ or YYYYMMDDhhmmssZ, as RFC 5280 prescribes.
fn unix_seconds(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z').filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?;
    let number = |from: usize, len: usize| digits.get(from..from + len)?.parse::<i64>().ok();
    let (year, at) = match (tag, digits.len()) {
        (UTC_TIME, 12) => (number(0, 2).map(|y| if y < 50 { 2000 + y } else { 1900 + y })?, 2),
        (GENERALIZED_TIME, 14) => (number(0, 4)?, 4),
        _ => return None,
    };
    let (month, day) = (number(at, 2)?, number(at + 2, 2)?);
    let seconds = number(at + 4, 2)? * 3600 + number(at + 6, 2)? * 60 + number(at + 8, 2)?;
    (1..=12).contains(&month).then(|| days(year, month, day) * 86_400 + seconds)
}

/// Days since 1970-01-01 in the Gregorian calendar; years begin in March, so that a leap day is last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leaps + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_found() {
        for (year, want) in [(2031, 1_930_867_200), (2055, 2_688_249_600), (1999, 922_924_800)] {
            let key = rcgen::KeyPair::generate().expect("a key");
            let mut params = rcgen::CertificateParams::new(vec!["a.b".into()]).expect("params");
            params.not_after = rcgen::date_time_ymd(year, 3, 10);
            let certificate = params.self_signed(&key).expect("signed");
            let days_off = |t: i64| (t - want) / 86_400;
            let found = not_after(certificate.der()).expect("an end");
            assert_eq!(found % 86_400, 0);
            // The 10th of March, whatever the year's leap days.
            assert!(days_off(found).abs() <= 30, "{year}: {found}");
        }
        assert_eq!(unix_seconds(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(unix_seconds(GENERALIZED_TIME, "20240229235959Z"), Some(1_709_251_199));
        assert_eq!(unix_seconds(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
    }

    #[test]
    fn bytes_that_are_no_certificate_give_nothing() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["a.b".into()]).expect("params");
        let der = params.self_signed(&key).expect("signed").der().to_vec();
        for cut in 0..der.len() {
            assert_eq!(not_after(&der[..cut]), None, "cut at {cut}");
        }
        for at in 0..der.len().min(200) {
            let mut bad = der.clone();
            bad[at] = bad[at].wrapping_add(0x81);
            let _no_panic = not_after(&bad);
        }
        assert_eq!(not_after(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
