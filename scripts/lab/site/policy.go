package site

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// policies are the NetworkPolicy objects of CheckPolicies, for the pod with the label role=server:
// nothing may connect to it, then only pods with the label role=client.
const (
	denyAll = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server}
spec:
  podSelector: {matchLabels: {role: server}}
  policyTypes: [Ingress]
  ingress: []
`
	allowClient = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server}
spec:
  podSelector: {matchLabels: {role: server}}
  policyTypes: [Ingress]
  ingress:
  - from: [{podSelector: {matchLabels: {role: client}}}]
`
)

// CheckPolicies shows that NetworkPolicy objects decide about traffic from one pod of the workload
// to another, on different nodes: all passes, nothing passes, only pods with a label pass, all
// passes. log gets what each request answered.
func (c *Cluster) CheckPolicies(ctx context.Context, server, client Pod, log func(format string, args ...any)) error {
	label := func(p Pod, role string) error {
		_, err := c.Kubectl(ctx, "label", "pod", p.Name, role)
		return err
	}
	if err := errors.Join(label(server, "role=server"), label(client, "role=other")); err != nil {
		return err
	}
	for _, step := range []struct {
		name   string
		do     func() error
		passes bool
	}{
		{"without a policy", func() error { return nil }, true},
		{"a policy that allows nothing", func() error { return c.Apply(ctx, denyAll) }, false},
		{"a policy that allows role=client", func() error { return c.Apply(ctx, allowClient) }, false},
		{"the pod has role=client", func() error {
			_, err := c.Kubectl(ctx, "label", "--overwrite", "pod", client.Name, "role=client")
			return err
		}, true},
		{"the policy is deleted, and so is the label", func() error {
			_, err := c.Kubectl(ctx, "delete", "networkpolicy", "server")
			return errors.Join(err, label(client, "role-"), label(server, "role-"))
		}, true},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if err := c.passes(ctx, client, server, step.passes, func(answer string) {
			log("%s: %s on %s asks %s on %s: %s", step.name, client.Name, client.Node, server.Name, server.Node, answer)
		}); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// policyTimeout limits the wait until a change of a policy or a label has its effect.
const policyTimeout = 30 * time.Second

// passes waits until requests from one pod to another pass, or until they do not.
func (c *Cluster) passes(ctx context.Context, from, to Pod, want bool, show func(answer string)) error {
	deadline := time.Now().Add(c.limit(policyTimeout))
	for {
		out, err := c.Ask(ctx, from, "http://"+to.IP+":8080/hostname")
		if err != nil {
			return err // this host could not ask
		}
		answer := strings.TrimSpace(out)
		passed := !strings.Contains(answer, `"errors"`) && strings.Contains(answer, to.Name)
		if passed == want {
			show(answer)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("passes is %v, want %v: %s", passed, want, answer)
		}
	}
}
