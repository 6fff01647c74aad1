package host

import "testing"

func TestPodCgroup(t *testing.T) {
	h := rooted(t, map[string]string{
		"/sys/fs/cgroup/cpu/kubepods/burstable/podaaa/cgroup.procs":                                             "",
		"/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podbbb.slice/cgroup.procs": "",
		"/sys/fs/cgroup/kubepods.slice/kubepods-podccc.slice/cgroup.procs":                                      "",
	})
	for uid, want := range map[string]string{
		"aaa": "/sys/fs/cgroup/cpu/kubepods/burstable/podaaa",
		"bbb": "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podbbb.slice",
		"ccc": "/sys/fs/cgroup/kubepods.slice/kubepods-podccc.slice",
		"ddd": "",
	} {
		if want != "" {
			want = h.Path(want)
		}
		if got := h.PodCgroup(uid); got != want {
			t.Errorf("%s: %q, want %q", uid, got, want)
		}
	}
}
