package health

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestWaitForComponent(t *testing.T) {
	var asked atomic.Int32
	healthy := atomic.Int32{}
	healthy.Store(3)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" || asked.Add(1) < healthy.Load() {
			http.Error(w, "leader election is lost", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	var states []string
	report := func(state string) { states = append(states, state) }
	if err := WaitForComponent(context.Background(), "kube-scheduler", server.URL+"/healthz", time.Minute, report); err != nil {
		t.Error(err)
	}
	if asked.Load() != 3 || len(states) != 1 || !strings.Contains(states[0], "leader election is lost") {
		t.Errorf("asked %d times, reported %q", asked.Load(), states)
	}
	healthy.Store(1 << 30)
	err := WaitForComponent(context.Background(), "kube-scheduler", server.URL+"/healthz", 2*time.Second, nil)
	if err == nil || !strings.Contains(err.Error(), "kube-scheduler at https://127.0.0.1") || !strings.Contains(err.Error(), "leader election is lost") {
		t.Errorf("never healthy: %v", err)
	}
}
