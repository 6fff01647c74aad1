package workloads

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod in a crash loop is Ready for the second in which its container runs.
func TestReadyAfterCrash(t *testing.T) {
	for name, c := range map[string]struct {
		started time.Duration // before now
		code    int32
		ready   bool
	}{
		"just started again":            {2 * time.Second, 1, false},
		"runs for a while":              {11 * time.Second, 1, true},
		"ended without an error":        {2 * time.Second, 0, true},
		"its node's clock is far ahead": {-time.Hour, 1, true},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "kube-proxy", RestartCount: 2,
				State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-c.started))}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: c.code, Reason: "Error"}},
			}},
		}}
		ready, why := PodReady(pod)
		if ready != c.ready || !ready && !strings.Contains(why, "container kube-proxy exited with code 1 (Error) and restarted 2 times") {
			t.Errorf("%s: %t, %q", name, ready, why)
		}
	}
}
