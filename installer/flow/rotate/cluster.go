package rotate

import (
	"context"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster/rotation"
	"airlift/installer/cluster/wait"
	"airlift/installer/cluster/workloads"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// clusterState reads and changes the state of the rotation that is stored in the cluster, and what the
// cluster's pods and joining nodes trust.
type clusterState struct {
	*node.Machine
	run *run
}

// checkSame refuses to continue with the CAs of another rotation.
func (c *clusterState) checkSame() error {
	_, next, err := pki.RotationCAs(c.run.config, c.Files(), "ca")
	if err != nil || next == nil {
		return err
	}
	id, err := rotationID(next)
	if err == nil && id != c.run.state.ID {
		err = fault.New(fault.Preflight, "%s has the CAs of another rotation (%s) than the cluster (%s)", path.Join(c.run.config.CertificatesDir, pki.RotationDir), id, c.run.state.ID).
			Hint("if it belongs to an earlier rotation and was restored from a backup, move that directory away")
	}
	return err
}

// rotationID names a rotation by the hash of the new CA.
func rotationID(next []byte) (string, error) {
	hashes, err := pki.CAHashes(next)
	if err != nil {
		return "", err
	}
	return hashes[0], nil
}

func rank(stage string) int { return slices.Index(order, stage) }

// reached reports whether this node, which is in the given stage, has reached this run's stage. A
// control plane that has not begun has nothing to cancel.
func (c *clusterState) reached(stage string) (bool, error) {
	if c.run.options.Stage != Cancel {
		return rank(stage) >= rank(c.run.options.Stage), nil
	}
	_, next, err := pki.RotationCAs(c.run.config, c.Files(), "ca")
	return stage == Cancel || c.IsControlPlane() && next == nil, err
}

// mayEnter refuses a stage that cannot follow the current stage of this node or of the cluster.
func (c *clusterState) mayEnter(self string) error {
	want, now := c.run.options.Stage, c.run.state.Stage
	switch {
	case now == Cancel && want != Cancel:
		return fault.New(fault.Preflight, "the rotation is being cancelled").Hint("run on every node: ./install certs rotate-ca cancel")
	case want == Cancel && now != Distribute && now != Cancel:
		return fault.New(fault.Preflight, "the rotation cannot be cancelled any more: the stage %q has begun, and the new CAs sign certificates", now).
			Hint("continue: ./install certs rotate-ca issue, and then finish, on every node")
	case want != Cancel && rank(self) < rank(want)-1:
		before := order[rank(want)-1]
		return fault.New(fault.Preflight, "this node has not reached the stage %q", before).Hint("run here first: ./install certs rotate-ca " + before)
	case !c.IsControlPlane() && (want == Cancel && now != want || rank(now) < rank(want)):
		return fault.New(fault.Preflight, "the stage %q has not begun", want).Hint("run on a control plane first: ./install certs rotate-ca " + want)
	}
	return nil
}

// enter begins the stage in the cluster, if it has not begun: no node may be behind.
func (c *clusterState) enter(ctx context.Context) error {
	want := c.run.options.Stage
	if want == c.run.state.Stage || want != Cancel && rank(c.run.state.Stage) > rank(want) {
		return nil
	}
	if want != Cancel {
		if err := c.noneBehind(ctx, order[rank(want)-1]); err != nil {
			return err
		}
	}
	if want == Issue {
		next := strings.TrimSpace(string(c.run.state.Next))
		published := func(bundle string) bool { return strings.Contains(bundle, next) }
		if err := rotation.WaitForPublishedCA(ctx, c.run.client.API, published, waiting(c.Machine)); err != nil {
			return err
		}
	}
	c.run.state.Stage = want
	return c.Applied(rotation.Store(ctx, c.run.client, c.run.state))
}

// waiting limits a wait for the cluster.
func waiting(m *node.Machine) wait.Limit {
	return wait.Limit{Timeout: timeout, Report: m.Report}
}

// noneBehind refuses to continue while nodes have not reached a stage, and names them.
func (c *clusterState) noneBehind(ctx context.Context, stage string) error {
	nodes, err := rotation.Nodes(ctx, c.run.client.API, c.run.state.ID)
	if err != nil {
		return err
	}
	if left := behind(nodes, stage); len(left) > 0 {
		return fault.New(fault.Preflight, "these nodes have not reached the stage %q: %s", stage, strings.Join(left, ", ")).
			Hint("run on each of them: ./install certs rotate-ca " + stage + "; remove a node that is gone, on a control plane: ./install node remove NAME")
	}
	return nil
}

// behind returns the names of the nodes that have not reached a stage.
func behind(nodes []rotation.Node, stage string) (names []string) {
	for _, n := range nodes {
		is := n.Stage == stage || stage != Cancel && rank(n.Stage) >= rank(stage)
		if stage == Cancel && n.Stage == "" {
			is = true
		}
		if !is {
			names = append(names, n.Name)
		}
	}
	return names
}

// publishCAs publishes the CAs of this stage to joining nodes. It keeps what a node in a later
// stage has published.
func (c *clusterState) publishCAs(ctx context.Context) error {
	if c.run.options.Stage != c.run.state.Stage {
		return nil
	}
	server, err := c.run.client.ClusterInfoServer(ctx)
	if err != nil || server == "" {
		return err
	}
	return c.Applied(c.run.client.Apply(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": string(pki.ClusterInfoKubeconfig(server, c.run.trusted()))},
	}))
}

// addonNamespaces have the cluster's add-ons, whose pods use the API.
var addonNamespaces = []string{"kube-system", "kube-flannel"}

// restartWorkloads restarts the pods that read the CA when they start, once per stage.
func (c *clusterState) restartWorkloads(ctx context.Context) error {
	if err := c.restart(ctx, addonNamespaces...); err != nil {
		return err
	}
	if err := workloads.WaitForRollouts(ctx, c.run.client.API, waiting(c.Machine), addonNamespaces...); err != nil {
		return err
	}
	if c.run.options.RestartWorkloads {
		// Not earlier: while a node's kube-proxy restarts, the node still sends requests to pods
		// that have ended.
		if err := c.restart(ctx, metav1.NamespaceAll); err != nil {
			return err
		}
		if err := workloads.WaitForRollouts(ctx, c.run.client.API, waiting(c.Machine), metav1.NamespaceAll); err != nil && ctx.Err() == nil {
			c.Console.Warn("%v", err) // a workload of the site that was not Ready before is not a reason to stop
		}
		return ctx.Err()
	}
	others, err := workloads.UsingAPI(ctx, c.run.client.API, addonNamespaces...)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		effect := "may not trust the new CA"
		if c.run.options.Stage == Finish {
			effect = "may trust the old CA"
		}
		c.Console.Warn("pods of these workloads have a token, and %s until they are restarted (kubectl rollout restart, or --restart-workloads): %s", effect, strings.Join(others, ", "))
	}
	return nil
}

// restart restarts the workloads of these namespaces that were not restarted in this stage.
func (c *clusterState) restart(ctx context.Context, namespaces ...string) error {
	restarted, err := workloads.Restart(ctx, c.run.client.API, c.run.options.Stage+" "+c.run.state.ID, namespaces...)
	c.Changes += len(restarted)
	for _, name := range restarted {
		c.Console.Debug(1, "restarting %s", name)
	}
	return err
}

// forgetUnused removes the unused CAs from the bundles that extension API servers trust.
func (c *clusterState) forgetUnused(ctx context.Context) error {
	unused := [][]byte{c.run.state.Former, c.run.state.FormerFrontProxy}
	if c.run.options.Stage == Cancel {
		unused = [][]byte{c.run.state.Next, c.run.state.NextFrontProxy}
	}
	return c.Applied(rotation.EditExtensionCAs(ctx, c.run.client, func(bundle []byte) ([]byte, error) { return pki.WithoutCerts(bundle, unused...) }))
}
