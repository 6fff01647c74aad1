package plan

import (
	"cmp"
	"fmt"
	"slices"

	"airlift/internal/fault"
)

// A control plane changes the keys step by step. Between two steps, the others follow with ReconfigureNode.
const (
	SecretsEnable  = "secrets enable"
	SecretsDisable = "secrets disable"
)

// changesKeys reports whether a command that changes the keys was not finished on the host, or ended before other control planes followed.
func (h host) changesKeys() bool {
	return h.began(SecretsEnable) || h.began(SecretsDisable) || h.Node != nil && h.Node.Encryption != nil && h.Node.Encryption.Began
}

// stepsLeft returns how many changes of the keys are left until the file is reached, by the keys of a control plane.
func (s *site) stepsLeft(h host) (steps int, possible bool) {
	name := SecretsDisable
	if *s.Spec.EncryptSecrets {
		name = SecretsEnable
	}
	steps, possible = h.Node.Encryption.Steps[name]
	return steps, possible
}

// findEncryptor chooses the control plane that changes the keys: the one that did not finish a step, or else the one that is next to the
// end. The keys do not change together with the version or the endpoint.
func (s *site) findEncryptor() {
	list := filter(s.planes, func(h host) bool { return !h.isNew() && h.Node.Encryption != nil })
	if s.Spec.EncryptSecrets == nil || len(list) == 0 {
		return
	}
	if i := slices.IndexFunc(list, func(h host) bool { return h.Node.Encryption.Site != "" }); i >= 0 {
		if h := list[i]; !s.Spec.EncryptsByProfile {
			s.problem(h.Name, "remove encryptSecrets from cluster.yaml; or change that configuration in steps: ./install docs reconfigure",
				"it is the site's own: "+h.Node.Encryption.Site, "cannot change the encryption of Secrets")
		}
		return
	}
	left := func(h host) int { steps, _ := s.stepsLeft(h); return steps }
	h := slices.MinFunc(list, func(a, b host) int {
		behind := func(h host) int { return number(s.nodes[h.Name].ConfigurationBehind) } // it has other keys when it has followed
		return cmp.Or(firstIf(func(h host) bool { return h.Node.Encryption.Began })(a, b), cmp.Compare(behind(a), behind(b)), firstIf(host.changesKeys)(a, b), cmp.Compare(left(a), left(b)),
			cmp.Compare(number(a.Cluster == nil), number(b.Cluster == nil)), cmp.Compare(a.Name, b.Name)) // not by health: a saved plan would be another one
	})
	steps, possible := s.stepsLeft(h)
	if !possible {
		s.problem(h.Name, "on that host: ./install secrets rotate", "the key is being replaced", "cannot change the encryption of Secrets")
		return
	}
	if steps > 0 || s.cluster.StaleSecrets > 0 || h.changesKeys() {
		s.encryptor = h.Name
	}
}

// unfinishedKeys lets a control plane finish a step that was interrupted, before anything else changes it: it may be down.
func (s *site) unfinishedKeys() Stage {
	return s.onPlanes("unfinished keys of Secrets", func(h host) *Action {
		if h.Name != s.encryptor || !h.Node.Encryption.Began {
			return nil
		}
		a := s.encrypts(h, true)
		a.Why, a.Began, a.More = fmt.Sprintf("did not finish %q", a.Verb), true, true
		return a
	})
}

// encryption returns the stages that encrypt the Secrets, or store them without encryption again: a control plane changes the keys, and the
// others follow, for each step.
func (s *site) encryption() (stages []Stage) {
	if s.encryptor == "" {
		return nil
	}
	if s.later != "" && s.later != laterKeys {
		s.note("the encryption of Secrets changes after %s: then run the same command again", s.later)
		return nil
	}
	for _, n := range s.cluster.Nodes {
		if n.ControlPlane && !s.uses(n.Name) && !s.leaves(n.Name) {
			s.rest(fault.Held, "let it be part of the run: in cluster.yaml, and without --skip; or remove it: ./install cluster apply --remove",
				"the encryption of Secrets does not change, because %s would not follow it, and could not read them", n.Name)
			return nil
		}
	}
	if i := slices.IndexFunc(s.planes, func(h host) bool { return h.began(Join) }); i >= 0 { // if the configuration changes in this run, it has the former one
		s.note("the encryption of Secrets changes after %s has joined: then run the same command again", s.planes[i].Name)
		return nil
	}
	h, _ := s.find(s.encryptor)
	steps, _ := s.stepsLeft(h)
	began, alone := h.Node.Encryption.Began, len(s.planes) == 1
	if !began && s.nodes[h.Name].ConfigurationBehind {
		s.note("the encryption of Secrets changes after %s has followed the last change of the configuration, which may have other keys: then run the same command again", h.Name)
		return nil
	}
	if alone {
		return []Stage{s.onPlanes("encryption of Secrets", only(s.encrypts(h, steps > 0 || began)))}
	}
	follow := func(i int) {
		stages = append(stages, s.onPlanes(stepName("control planes follow the encryption", i), s.followKeys))
	}
	behind := func(o host) bool { return o.Name != h.Name && s.nodes[o.Name].ConfigurationBehind }
	if began || slices.ContainsFunc(s.planes, behind) { // configuration leaves them behind while workers are held
		follow(0)
	}
	if began {
		steps++ // the step may be one away from the goal, or not in its file yet
	}
	for i := range steps {
		stages = append(stages, s.onPlanes(stepName("encryption of Secrets", i+1), only(s.encrypts(h, true))))
		follow(i + 1)
	}
	return append(stages, s.onPlanes("proof of the encryption", only(s.encrypts(h, false))))
}

func stepName(name string, i int) string { return fmt.Sprintf("%s, step %d", name, i) }

// only is the feature of one host.
func only(a *Action) feature {
	return func(h host) *Action {
		if h.Name == a.Host {
			return a
		}
		return nil
	}
}

// encrypts is one run of the command. One that changes keys ends when others must follow.
func (s *site) encrypts(h host, changes bool) *Action {
	a := &Action{Host: h.Name, Verb: SecretsDisable, Why: "Secrets are to be stored without encryption", Effect: None}
	if *s.Spec.EncryptSecrets {
		a.Verb, a.Why = SecretsEnable, "Secrets are to be encrypted in etcd"
	}
	if changes {
		a.Effect, a.Changes, a.More = Restart, []string{"restarts kube-apiserver"}, len(s.planes) > 1
	} else {
		a.Why = "Secrets that are left are written again, and each value in etcd is read"
	}
	return a
}

// followKeys lets another control plane have the keys of the last step.
func (s *site) followKeys(h host) *Action {
	if h.Name == s.encryptor {
		return nil
	}
	return &Action{Host: h.Name, Verb: ReconfigureNode, To: s.Version, Why: "gets the keys", Effect: Restart, Changes: []string{"restarts kube-apiserver"}}
}

// laterKeys is what kubeadm's documents wait for while a step of the keys is not finished.
const laterKeys = "the unfinished change of the keys of Secrets"
