package pods

import (
	"context"
	"time"

	"airlift/images/store"
	"airlift/installer/cluster"
	"airlift/installer/node"
)

// WaitSettled waits, after the start of another kubelet, until the static pods have the containers
// that this kubelet wants, and are healthy. The kubelet of another minor version gives the pods of
// the same manifests other UIDs, so it stops all of them and creates them again, seconds after it
// has reported that the node is Ready.
func (s *StaticPods) WaitSettled(ctx context.Context, client *cluster.Client, self string) error {
	if c, err := node.KubeletConfiguration(s.Host); err != nil || c.EnableServer != nil && !*c.EnableServer {
		return err // such a kubelet cannot be asked
	}
	s.begun = time.Now()
	components := s.Names()
	var uids map[string]string
	err := s.watch.Watched(ctx, Dependency{Only: true, since: s.begun}, func(ctx context.Context) (err error) {
		uids, err = client.WaitForStaticPodUIDs(ctx, self, components, s.Timeout, s.Report)
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range components {
		wanted := func(c store.Container) bool { return c.PodUID == uids[name] }
		if err := s.waitContainer(ctx, name, wanted); err != nil {
			return err
		}
		if err := s.waitHealthy(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
