package secrets

import (
	"slices"

	"airlift/internal/fault"
)

// A Goal is what a command wants of the keys. How far an earlier run came is not recorded: the keys that the API servers have show it.
type Goal string

const (
	Enable  Goal = "enable"  // a key encrypts
	Rotate  Goal = "rotate"  // another key encrypts than before
	Disable Goal = "disable" // nothing is encrypted
)

// A Stage is the next step from the keys that all control planes have. With none of both, the goal is reached.
type Stage struct {
	Doc string
	// Rewrite is set if all Secrets must be written again before Next.
	Rewrite bool
	// Next are the keys for all control planes, nil if they stay.
	Next *Keys
}

// Next returns the next step to a goal. Between two steps, each server reads what any server writes. Rotate begins with a key that
// encrypts alone; a caller that has just removed the former one does not ask again.
func (k *Keys) Next(g Goal) (Stage, error) {
	if k == nil {
		k = &Keys{Plain: true}
	}
	encrypts, newest := !k.Plain && len(k.Active) > 0, k.newest()
	switch {
	case g == Disable && encrypts:
		return Stage{Doc: "new Secrets are not encrypted", Next: k.with(true, k.Active...)}, nil
	case g == Disable && len(k.Active) > 0:
		return Stage{Doc: "the keys are retired", Rewrite: true, Next: k.with(true)}, nil
	case g == Enable && len(k.Active) == 0:
		return Stage{Doc: "the API servers can read a new key", Next: k.with(true, newKey(k.last()))}, nil
	case g == Enable && k.Plain:
		return Stage{Doc: "the key encrypts", Next: k.with(false, k.Active...)}, nil
	case g == Rotate && !encrypts && len(k.Active) > 0:
		return Stage{}, fault.New(fault.Preflight, "the encryption of Secrets is being enabled or disabled").Hint("finish that first: ./install secrets enable; or: ./install secrets disable")
	case g == Rotate && !encrypts:
		return Stage{}, fault.New(fault.Preflight, "Secrets are not encrypted").Hint("./install secrets enable")
	case g == Enable && len(k.Active) > 1:
		return Stage{}, fault.New(fault.Preflight, "a rotation of the key is not finished").Hint("./install secrets rotate")
	case g == Rotate && len(k.Active) == 1:
		return Stage{Doc: "the API servers can read a new key", Next: k.with(false, k.Active[0], newKey(k.last()))}, nil
	case g == Rotate && newest > 0:
		return Stage{Doc: "the new key encrypts", Next: k.with(false, append([]Key{k.Active[newest]}, slices.Delete(slices.Clone(k.Active), newest, newest+1)...)...)}, nil
	case g == Rotate:
		return Stage{Doc: "the former key is retired", Rewrite: true, Next: k.with(false, k.Active[0])}, nil
	}
	return Stage{Rewrite: true}, nil
}

// newest is the index of the newest active key.
func (k *Keys) newest() (newest int) {
	for i, one := range k.Active {
		if one.number() > k.Active[newest].number() {
			newest = i
		}
	}
	return newest
}

// with returns other active keys. Former ones that are not among them are retired.
func (k *Keys) with(plain bool, active ...Key) *Keys {
	next := &Keys{Plain: plain, Active: active, Retired: slices.Clip(k.Retired)}
	for _, one := range k.Active {
		if !slices.Contains(active, one) {
			next.Retired = append(next.Retired, one)
		}
	}
	return next
}
