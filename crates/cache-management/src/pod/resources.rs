//! Which extended resources a container asks for: their names, without allocating anything else.

use std::{fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};

/// Names with a `/` whose quantity is not 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Extended(pub(super) Vec<Arc<str>>);

impl<'de> Deserialize<'de> for Extended {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Quantities;

        impl<'de> Visitor<'de> for Quantities {
            type Value = Extended;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("quantities by resource name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Extended, A::Error> {
                let mut names = Vec::new();
                while let Some((name, quantity)) = map.next_entry::<ExtendedName, Quantity>()? {
                    if let (Some(name), true) = (name.0, quantity.not_zero) {
                        names.push(name);
                    }
                }
                Ok(Extended(names))
            }
        }

        deserializer.deserialize_map(Quantities)
    }
}

struct ExtendedName(Option<Arc<str>>);

impl<'de> Deserialize<'de> for ExtendedName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = ExtendedName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a resource name")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<ExtendedName, E> {
                Ok(ExtendedName(name.contains('/').then(|| name.into())))
            }
        }

        deserializer.deserialize_str(Name)
    }
}

/// A quantity, of which only one thing matters here.
struct Quantity {
    not_zero: bool,
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                // Digits of the number; what follows is a suffix or an exponent, and neither makes nothing of something.
                let number = text
                    .bytes()
                    .take_while(|byte| byte.is_ascii_digit() || b"+-.".contains(byte));
                Ok(Quantity {
                    not_zero: number.into_iter().any(|byte| (b'1'..=b'9').contains(&byte)),
                })
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity { not_zero: number != 0 })
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity { not_zero: number != 0 })
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                Ok(Quantity {
                    not_zero: number.abs() > 0.0,
                })
            }
        }

        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_quantity_is_zero_in_every_spelling() {
        let extended = |quantity: Value| {
            let extended: Extended = serde_json::from_value(json!({"x.io/a": quantity})).unwrap();
            extended.0.len()
        };
        for zero in [
            json!("0"),
            json!("0.0"),
            json!("0Ki"),
            json!("0e3"),
            json!("-0"),
            json!(0),
            json!("00m"),
        ] {
            assert_eq!(extended(zero.clone()), 0, "{zero}");
        }
        for some in [
            json!("1"),
            json!("0.5"),
            json!("10Gi"),
            json!("1e3"),
            json!(2),
            json!(".5"),
            json!("1m"),
        ] {
            assert_eq!(extended(some.clone()), 1, "{some}");
        }
    }
}
