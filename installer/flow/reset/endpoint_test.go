package reset

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Servers of the API: adopted is what the kubeconfigs had when the node was adopted, own is this host's, and other is another endpoint.
const (
	adopted = "https://10.1.2.100:6443"
	own     = "https://10.1.2.3:6443"
	other   = "https://10.1.2.200:6443"
)

// answering returns the URL of an API server of a cluster with this last change of its endpoint, nil for none.
func answering(t *testing.T, change *config.EndpointChange) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch {
		case r.URL.Path == "/version":
			answer = map[string]string{"major": "1", "minor": "29", "gitVersion": "v1.29.15"}
		case strings.HasSuffix(r.URL.Path, "/configmaps/"+config.EndpointConfigMap) && change != nil:
			data, err := config.Endpoint{Change: change}.Encode()
			if err != nil {
				t.Error(err)
			}
			answer = corev1.ConfigMap{Data: map[string]string{config.EndpointKey: string(data)}}
		default:
			w.WriteHeader(http.StatusNotFound)
			answer = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestServersAfterAChangeOfTheEndpoint: reset leaves no kubeconfig with a server that does not lead to the cluster.
func TestServersAfterAChangeOfTheEndpoint(t *testing.T) {
	changed := func(undone bool, server, before string) *config.EndpointChange {
		return &config.EndpointChange{Number: 1, Undone: undone, Server: server, Before: config.FormerEndpoint{Server: before}}
	}
	for name, c := range map[string]struct {
		online     bool
		change     *config.EndpointChange // of the cluster
		now        string                 // the server in kubelet.conf
		unrecorded bool                   // kubelet.conf was changed without an entry in the ledger
		want       string                 // the server after reset
		hint       string                 // of the refusal, "" for none
	}{
		"never changed":                        {online: true, now: other, want: adopted},
		"changed":                              {online: true, change: changed(false, other, adopted), now: other, want: other, hint: "./install endpoint undo"},
		"changed, without an entry":            {online: true, change: changed(false, other, adopted), now: other, unrecorded: true, want: other, hint: "./install endpoint undo"},
		"changed, with the own server":         {online: true, change: changed(false, other, adopted), now: own, want: own, hint: "./install endpoint undo"},
		"undone":                               {online: true, change: changed(true, adopted, other), now: own, want: adopted},
		"undone, and not followed":             {online: true, change: changed(true, adopted, other), now: other, want: other, hint: "./install endpoint node"},
		"undone, and not followed, no entry":   {online: true, change: changed(true, adopted, other), now: other, unrecorded: true, want: other, hint: "./install endpoint node"},
		"undone, to an endpoint of a change":   {online: true, change: changed(true, other, "https://10.1.2.201:6443"), now: own, want: own},
		"no API server, with the own server":   {now: own, want: adopted},
		"no API server, with another endpoint": {now: other, want: other},
	} {
		t.Run(name, func(t *testing.T) {
			root := adoptedPlane(t)
			h, _, unlock := open(t, root)
			defer unlock()
			kubeconfig := strings.Replace(changedConf, own, c.now, 1)
			if c.unrecorded {
				put(t, root, node.KubeletConf, kubeconfig)
			} else if _, err := h.WriteFile(node.KubeletConf, []byte(kubeconfig), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.online {
				put(t, root, node.AdminConf, strings.Replace(formerConf, adopted, answering(t, c.change), 1))
			}
			r, err := New(config.Reset{SkipPhases: []string{"kubelet"}}, "", h, &workflow.Console{Out: io.Discard})
			if err == nil {
				err = r.Run(t.Context())
			}
			if (err != nil) != (c.hint != "") || err != nil && (fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), c.hint) || !strings.Contains(fault.Hint(err), "./install disown")) {
				t.Errorf("%v, hint %q", err, fault.Hint(err))
			}
			server, err := cluster.ServerOf([]byte(contents(t, root)[node.KubeletConf]))
			if err != nil || server != c.want {
				t.Errorf("%v: the server is %s, want %s", err, server, c.want)
			}
			if _, written := h.Records().Find("file", node.KubeletConf); c.hint == "" && written {
				t.Error("the ledger still has kubelet.conf")
			}
		})
	}
}
