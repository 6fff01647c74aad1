package installer

import (
	"context"
	"path"
	"slices"

	"airlift/images/store"
	"airlift/installer/config"
)

// startSooner returns a function that removes a wait of the kubelet. It is for a wait in which no
// container of the component runs. before are the containers before the manifest was written.
//
// The pod of a changed manifest may not start before the previous one has ended, and the kubelet
// looks again only after ten to fifteen seconds (backOffPeriod of k8s.io/kubernetes/pkg/kubelet, with
// its jitter). It looks at once if the mirror pod is deleted. So when the previous pod has ended, the
// function deletes that pod's mirror pod, which the kubelet would replace anyway. This is not possible
// for the API server and etcd: there is no API meanwhile.
func (s *StaticPods) startSooner(component string, before []store.Container) func(context.Context) {
	done := s.deleteMirror == nil || component == etcdPod || component == "kube-apiserver"
	former := func(uid string) bool {
		return slices.ContainsFunc(before, func(c store.Container) bool { return c.PodUID == uid })
	}
	return func(ctx context.Context) {
		if done || !s.podsRemoved(before) {
			return
		}
		deleted, err := s.deleteMirror(ctx, component, former)
		if err != nil {
			return // the next call tries again, and the kubelet looks again by itself
		}
		done = true
		if deleted {
			s.console.Debug(1, "deleted the mirror pod of the previous %s", component)
		}
	}
}

// podsRemoved reports whether the kubelet has removed the directories of the pods of containers. It
// does that last.
func (s *StaticPods) podsRemoved(containers []store.Container) bool {
	return !slices.ContainsFunc(containers, func(c store.Container) bool {
		return s.exists(path.Join(config.KubeletDir, "pods", c.PodUID))
	})
}
