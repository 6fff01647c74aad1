package join

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/node"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// A control plane does not join a cluster whose CAs are being rotated.
func TestNoJoinDuringRotation(t *testing.T) {
	for stage, status := range map[string]int{"distribute": 200, "issue": 200, "cancel": 200, "none": 404, "forbidden": 403} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			if status == http.StatusOK {
				_ = json.NewEncoder(w).Encode(corev1.ConfigMap{Data: map[string]string{"stage": stage}})
				return
			}
			reason := map[int]metav1.StatusReason{404: metav1.StatusReasonNotFound, 403: metav1.StatusReasonForbidden}[status]
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Code: int32(status), Reason: reason})
		}))
		client, err := node.LoadClient(testhost.OfServer(t, server.URL, false), node.AdminConf, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		err = checkNoRotation(t.Context(), client)
		if refused := status == http.StatusOK; (err != nil) != refused || refused && (fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), stage) || !strings.Contains(fault.Hint(err), "rotate-ca status")) {
			t.Errorf("%s: %v", stage, err)
		}
		server.Close()
	}
}
