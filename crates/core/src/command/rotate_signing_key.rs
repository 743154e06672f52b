use crate::command::{Outcome, Transition};
use crate::keyring::{Keyring, Secret, SigningKey};
use crate::limits;
use crate::name::Tenant;
use crate::rejection::Rejection;
use crate::token::check_token_part;
use crate::world::World;

/// Adds a key that signs the tokens of a tenant from then on. The previous key still verifies its
/// tokens until its grace period ends.
#[derive(Clone, Debug)]
pub struct RotateSigningKey {
    pub tenant: Tenant,
    pub id: String,
    pub secret: Secret,
    pub grace_ms: u64,
    /// Only if the tenant has no key yet.
    pub if_absent: bool,
}

impl RotateSigningKey {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::KEY_ID.check(&self.id)?;
        check_token_part(limits::KEY_ID.field, &self.id)?;
        limits::GRACE_MS.check(self.grace_ms)?;
        self.secret.check()?;
        let now = world.now();
        let ring = world.get::<Keyring>(&Keyring::key_of(&self.tenant))?;
        let mut keys = ring.map(|ring| ring.keys.clone()).unwrap_or_default();
        keys.retain(|key| key.verifies(now));
        if let Some(same) = keys.iter().find(|key| key.id == self.id) {
            if same.secret != self.secret {
                return Err(Rejection::Conflict.into());
            }
            return Ok(Outcome::SigningKeyRotated { unchanged: true });
        }
        if self.if_absent && !keys.is_empty() {
            return Ok(Outcome::SigningKeyRotated { unchanged: true });
        }
        if keys.len() >= limits::KEYS_PER_TENANT as usize {
            return Err(Rejection::TooManySigningKeys { max: limits::KEYS_PER_TENANT }.into());
        }
        if let Some(last) = keys.last_mut() {
            last.expires_at = Some(now.plus_ms(self.grace_ms));
        }
        let (id, secret) = (self.id.clone(), self.secret.clone());
        keys.push(SigningKey { id, secret, added_at: now, expires_at: None });
        world.put::<Keyring>(Keyring { tenant: self.tenant.clone(), keys });
        Ok(Outcome::SigningKeyRotated { unchanged: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Sweep;
    use crate::testing::{Stage, rotation};

    fn ring(stage: &Stage) -> Vec<(String, Option<u64>)> {
        let ring = stage.record::<Keyring>(&Keyring::key_of(&Tenant::default()));
        let keys = ring.map(|ring| ring.keys).unwrap_or_default();
        keys.into_iter()
            .map(|key| (key.id, key.expires_at.map(|expires_at| stage.now.ms_until(expires_at))))
            .collect()
    }

    fn rotate(stage: &mut Stage, rotation: RotateSigningKey) -> Result<bool, &'static str> {
        match stage.run(rotation) {
            Ok(Outcome::SigningKeyRotated { unchanged }) => Ok(unchanged),
            Ok(other) => panic!("{other:?}"),
            Err(rejection) => Err(rejection.code()),
        }
    }

    #[test]
    fn the_newest_key_signs_and_the_previous_has_a_grace_period() {
        let mut stage = Stage::new();
        assert_eq!(rotate(&mut stage, rotation("k1", "07")), Ok(false));
        assert_eq!(ring(&stage), [("k1".into(), None)]);
        assert_eq!(rotate(&mut stage, rotation("k2", "08")), Ok(false));
        stage.later(10_000);
        assert_eq!(
            rotate(&mut stage, RotateSigningKey { grace_ms: 5_000, ..rotation("k3", "09") }),
            Ok(false)
        );
        let expected =
            [("k1".into(), Some(50_000)), ("k2".into(), Some(5_000)), ("k3".into(), None)];
        assert_eq!(ring(&stage), expected);
        stage.later(5_000);
        stage.must(Sweep::default());
        assert_eq!(ring(&stage), [("k1".into(), Some(45_000)), ("k3".into(), None)]);
        stage.later(45_000);
        assert_eq!(
            rotate(&mut stage, rotation("k1", "0a")),
            Ok(false),
            "the old one verifies nothing"
        );
    }

    #[test]
    fn a_repeated_rotation_changes_nothing() {
        let mut stage = Stage::new();
        assert_eq!(rotate(&mut stage, rotation("k1", "07")), Ok(false));
        assert_eq!(rotate(&mut stage, rotation("k2", "08")), Ok(false));
        let before = stage.tables.clone();
        for again in [rotation("k1", "07"), rotation("k2", "08")] {
            assert_eq!(rotate(&mut stage, again), Ok(true));
        }
        assert_eq!(rotate(&mut stage, rotation("k1", "08")), Err("conflict"));
        let seed = RotateSigningKey { if_absent: true, ..rotation("k9", "09") };
        assert_eq!(rotate(&mut stage, seed), Ok(true), "another node was first");
        assert_eq!(stage.tables, before);
    }

    #[test]
    fn limits_of_keys() {
        let mut stage = Stage::new();
        for n in 0..16 {
            assert_eq!(rotate(&mut stage, rotation(&format!("k{n}"), "07")), Ok(false));
        }
        assert_eq!(rotate(&mut stage, rotation("k16", "07")), Err("too_many_signing_keys"));
        stage.later(60_000);
        assert_eq!(rotate(&mut stage, rotation("k16", "07")), Ok(false));
        let secret =
            |hex: &str| RotateSigningKey { secret: Secret::new(hex), ..rotation("k", "07") };
        let bad = [
            rotation("", "07"),
            rotation("a.b", "07"),
            rotation(&"x".repeat(65), "07"),
            secret(""),
            secret(&"0".repeat(65)),
            secret(&"zz".repeat(32)),
            secret(&"07".repeat(31)),
            secret(&"07".repeat(129)),
            RotateSigningKey { grace_ms: u64::MAX, ..rotation("k", "07") },
            RotateSigningKey { tenant: "".into(), ..rotation("k", "07") },
        ];
        for rotation in bad {
            assert_eq!(rotate(&mut Stage::new(), rotation.clone()), Err("invalid"), "{rotation:?}");
        }
    }
}
