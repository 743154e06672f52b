use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::digest::{Digest, Digester};

/// Larger integers are rounded by the canonical form, which has only doubles.
const EXACT: u128 = 1 << 53;

/// The fields of a request that are ignored: see [`fingerprint`].
pub const IGNORED_FIELDS: &[&str] = &["idempotency_key", "context", "credentials"];

/// A digest that identifies equal requests.
///
/// It covers the name of the operation and the body. JSON is hashed in the canonical form of RFC
/// 8785, without the top-level fields in `ignored_fields`; other bodies are hashed as they are. So
/// is JSON with an integer that the canonical form would round, so that different amounts never
/// match, and JSON with a duplicate name in an object, since parsers disagree on its value.
pub fn fingerprint(operation: &str, body: &[u8], ignored_fields: &[&str]) -> Digest {
    let digester = Digester::new("fingerprint").part(operation.as_bytes());
    match canonical(body, ignored_fields) {
        Some(canonical) => digester.number(1).part(&canonical).finish(),
        None => digester.number(0).part(body).finish(),
    }
}

fn canonical(body: &[u8], ignored_fields: &[&str]) -> Option<Vec<u8>> {
    let Unambiguous(mut value) = serde_json::from_slice(body).ok()?;
    let counts = |name: &str| !ignored_fields.contains(&name);
    let is_exact = if let Value::Object(fields) = &mut value {
        fields.retain(|name, _| counts(name));
        let texts: BTreeMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
        texts.iter().all(|(name, text)| !counts(name) || is_exact(text.get().as_bytes()))
    } else {
        is_exact(body)
    };
    if is_exact { serde_json_canonicalizer::to_vec(&value).ok() } else { None }
}

/// A value without duplicate names in any object.
struct Unambiguous(Value);

struct Reader;

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate names")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(Unambiguous(value)) = values.next_element()? {
            read.push(value);
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some((name, Unambiguous(value))) = fields.next_entry::<String, _>()? {
            if read.insert(name, value).is_some() {
                return Err(A::Error::custom("a name is duplicated"));
            }
        }
        Ok(Value::Object(read))
    }
}

/// Whether the canonical form preserves all integers of this JSON. Checks the text, because parsing
/// has already turned the largest integers into doubles.
fn is_exact(mut json: &[u8]) -> bool {
    while let Some((first, rest)) = json.split_first() {
        let length = match first {
            b'"' => text_length(rest),
            b'0'..=b'9' => {
                let number =
                    &json[..1 + rest.iter().take_while(|byte| is_of_number(**byte)).count()];
                let digits = number.iter().all(u8::is_ascii_digit);
                let size = str::from_utf8(number).ok().and_then(|number| number.parse().ok());
                if digits && size.is_none_or(|size: u128| size > EXACT) {
                    return false;
                }
                number.len() - 1
            }
            _ => 0,
        };
        json = &rest[length..];
    }
    true
}

fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_digit() || b".eE+-".contains(&byte)
}

/// The length of a string after its first quote, including the last one.
fn text_length(rest: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = rest.iter().position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(rest.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(body: &str) -> Option<String> {
        super::canonical(body.as_bytes(), &[]).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    fn of(body: &str) -> Digest {
        fingerprint("pay", body.as_bytes(), IGNORED_FIELDS)
    }

    /// The sample of section 3.2.2 and 3.2.3.
    #[test]
    fn the_examples_of_the_standard() {
        let sample = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let expected = concat!(
            r#"{"literals":[null,true,false],"#,
            r#""numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
            r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
        assert_eq!(canonical(sample).as_deref(), Some(expected));
        let order = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return",
            "\ufb33":"Hebrew Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji",
            "\u0080":"Control","\u00f6":"Latin Small O With Diaeresis"}"#;
        let sorted = canonical(order).unwrap();
        let at = |name: &str| sorted.find(name).unwrap_or_else(|| panic!("{name} in {sorted}"));
        let names = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"];
        assert!(names.map(at).is_sorted(), "{sorted}");
    }

    /// The table of appendix B.
    #[test]
    fn the_numbers_of_the_standard() {
        for (bits, expected) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            let number = f64::from_bits(bits);
            assert_eq!(canonical(&format!("{number:e}")).as_deref(), Some(expected), "{bits:x}");
        }
    }

    #[test]
    fn equal_and_different_requests() {
        let first = of(r#"{"amount": 10.0, "to": "ada"}"#);
        for same in [
            r#"{"to":"ada","amount":10}"#,
            r#"{"to":"\u0061da","amount":1e1}"#,
            r#"{"to":"ada","amount":10,"idempotency_key":"k","context":{"trace":1}}"#,
            r#"{"to":"ada","credentials":"secret","amount":10}"#,
        ] {
            assert_eq!(of(same), first, "{same}");
        }
        for other in [
            r#"{"to":"ada","amount":10.01}"#,
            r#"{"to":"Ada","amount":10}"#,
            r#"{"to":"ada","amount":"10"}"#,
            r#"{"to":"ada","amount":10,"note":{"context":1}}"#,
            r#"{"to":"ada","amount":10,"note":null}"#,
            r#"["to","ada","amount",10]"#,
            "to=ada&amount=10",
            "",
        ] {
            assert_ne!(of(other), first, "{other}");
        }
        let body = br#"{"to":"ada","amount":10}"#;
        assert_ne!(fingerprint("refund", body, IGNORED_FIELDS), first, "another operation");
        let nested = |n: u8| of(&format!(r#"{{"note":{{"context":{n}}}}}"#));
        assert_ne!(nested(1), nested(2), "only top-level fields are excluded");
    }

    #[test]
    fn different_amounts_have_different_fingerprints() {
        assert_eq!(canonical("9007199254740993"), None);
        let amount = |n: u64| of(&format!(r#"{{"amount":{n}}}"#));
        assert_ne!(amount(9_007_199_254_740_993), amount(9_007_199_254_740_992));
        assert_ne!(amount(u64::MAX), amount(u64::MAX - 1));
        // Integers beyond the machine types are parsed as rounded doubles.
        for (one, other) in [
            ("18446744073709551616", "18446744073709551617"),
            ("-9223372036854775809", "-9223372036854775810"),
            ("1000000000000000000000000", "1000000000000000000000001"),
        ] {
            let amount = |n: &str| of(&format!(r#"{{"to":"\"1","amount":[{{"wei":{n}}}]}}"#));
            assert_ne!(amount(one), amount(other), "{one}");
            assert_ne!(of(one), of(other), "{one}");
        }
        let traced = |n: &str| of(&format!(r#"{{"amount":1,"\u0063ontext":{{"trace":{n}}}}}"#));
        assert_eq!(traced("18446744073709551616"), traced("7"), "excluded fields are not checked");
        assert_eq!(
            of(r#"{"to":"18446744073709551616"}"#),
            of(r#"{ "to": "18446744073709551616"}"#)
        );
    }

    #[test]
    fn duplicate_names_are_not_canonicalized() {
        let twice = r#"{"amount":1,"amount":2}"#;
        assert_eq!(canonical(twice), None);
        for once in [r#"{"amount":1}"#, r#"{"amount":2}"#, r#"{"amount":2,"amount":1}"#] {
            assert_ne!(of(twice), of(once), "{once}");
        }
        assert_eq!(canonical(r#"[{"a":{"b":1,"b":1}}]"#), None);
    }

    /// An object with its fields in pseudo-random order and spelling.
    #[test]
    fn order_and_spelling_do_not_count() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..500 {
            let fields: Vec<(u64, i64, char)> = (0..next(6))
                .map(|at| {
                    let content = char::from_u32(u32::try_from(next(0xd7ff)).unwrap()).unwrap();
                    (at, next(1 << 40).cast_signed() - (1 << 39), content)
                })
                .collect();
            let plain = |(at, number, content): &(u64, i64, char)| {
                let text = serde_json::to_string(&format!("{content}/")).unwrap();
                format!(r#""f{at}":[{number},{text}]"#)
            };
            let spelled = |(at, number, content): &(u64, i64, char)| {
                let code = u32::from(*content);
                format!("\"f{at}\" :\t[ {number}.0 ,\n\"\\u{code:04x}\\/\"]")
            };
            let one: Vec<String> = fields.iter().map(plain).collect();
            let other: Vec<String> = fields.iter().rev().map(spelled).collect();
            let (one, other) =
                (format!("{{{}}}", one.join(",")), format!("{{ {} }}", other.join(" , ")));
            assert_eq!(of(&one), of(&other), "round {round}: {one} {other}");
        }
    }
}
