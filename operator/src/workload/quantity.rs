//! Quantities of Kubernetes as bytes.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const UNITS: [(&str, f64); 15] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("m", 0.001),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("u", 1e-6),
    ("n", 1e-9),
];

/// The number of bytes; `None` when the text is no quantity. `1Gi`, `1.5G`, `1e9` and plain numbers.
pub fn bytes(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.trim();
    let found = UNITS.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)));
    let (number, unit) = found.unwrap_or((text, 1.0));
    let value = number.parse::<f64>().ok()? * unit;
    (value.is_finite() && (0.0..1.8e19).contains(&value)).then_some(value as u64)
}

/// The memory that a container may use, in bytes, if it is bounded: its limit, else its request.
pub fn memory_limit_bytes(resources: &ResourceRequirements) -> Option<u64> {
    let memory = |of: &Option<std::collections::BTreeMap<String, Quantity>>| {
        of.as_ref().and_then(|of| of.get("memory")).and_then(bytes)
    };
    memory(&resources.limits).or_else(|| memory(&resources.requests))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_become_bytes() {
        let cases = [("1Gi", Some(1 << 30)), ("1.5G", Some(1_500_000_000)), ("1e3", Some(1000))];
        for (text, wanted) in cases.into_iter().chain([("12", Some(12)), ("1500m", Some(1)), ("x", None)]) {
            assert_eq!(bytes(&Quantity(text.into())), wanted, "{text}");
        }
    }
}
