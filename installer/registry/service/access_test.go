package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"airlift/installer/config"
	"airlift/installer/registry"
)

var bearer = map[string]string{"Authorization": "Bearer " + token}

// Who sends what gets which status, at each kind of path.
func TestWhoMayRead(t *testing.T) {
	path, _, id := sample(t, 1)
	r := start(t, nil, path)
	admin := r.issue(t, "kubernetes-admin", []string{"system:masters"}, x509.ExtKeyUsageClientAuth)
	for _, c := range []struct {
		name                    string
		cert                    *tls.Certificate
		authorization           string
		bundles, images, readyz int
	}{
		{"a node", r.kubelet(t, node), "", 200, 200, 200},
		{"a bootstrap token", nil, "Bearer " + token, 200, 403, 200},
		{"the scheme in another case", nil, "bearer " + token, 200, 403, 200},
		{"nobody", nil, "", 401, 403, 200},
		{"a node that does not exist", r.kubelet(t, "removed"), "", 401, 403, 200},
		{"an administrator", admin, "", 401, 403, 200},
		{"an administrator with a token", admin, "Bearer " + token, 200, 403, 200},
		{"a node's name in another group", r.issue(t, "system:node:"+node, []string{"system:masters"}, x509.ExtKeyUsageClientAuth), "", 401, 403, 200},
		{"a node's name without a group", r.issue(t, "system:node:"+node, nil, x509.ExtKeyUsageClientAuth), "", 401, 403, 200},
		{"the group without a node's name", r.issue(t, node, []string{"system:nodes"}, x509.ExtKeyUsageClientAuth), "", 401, 403, 200},
		{"the group with an empty name", r.kubelet(t, ""), "", 401, 403, 200},
		{"a wrong token", nil, "Bearer abcdef.0123456789abcdee", 401, 403, 200},
		{"a service account", nil, "Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2ln", 401, 403, 200},
		{"a password", nil, "Basic YWRtaW46c2VjcmV0", 401, 403, 200},
		{"an empty token", nil, "Bearer ", 401, 403, 200},
		{"a long token", nil, "Bearer " + strings.Repeat("a", 8000), 401, 403, 200},
	} {
		client, header := r.client(t, c.cert), map[string]string{}
		if c.authorization != "" {
			header["Authorization"] = c.authorization
		}
		for path, want := range map[string]int{
			"/bundles": c.bundles, "/bundles/" + id: c.bundles, "/v2/": c.images, "/v2/library/x/manifests/1?ns=docker.io": c.images, "/readyz": c.readyz,
		} {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				if got := r.status(t, client, sending{method, path, header}); got != want {
					t.Errorf("%s: %s %s: %d, want %d", c.name, method, path, got, want)
				}
			}
		}
	}
	if strings.Contains(r.logged.String(), token) {
		t.Error("the log has a token")
	}
	if r.api.reviews > 2 { // of the right one and the wrong one
		t.Errorf("%d tokens were reviewed", r.api.reviews)
	}
	if got := r.state().Refused; got == 0 {
		t.Error("refused requests are not counted")
	}
}

// /v2 never answers 401, whatever the request is: containerd would send the pod's secret.
func TestImagesNeverAsk(t *testing.T) {
	r := start(t, nil)
	for _, cert := range []*tls.Certificate{nil, r.kubelet(t, node), r.kubelet(t, "removed")} {
		client := r.client(t, cert)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"} {
			for _, path := range []string{"/v2", "/v2/", "/v2/a/blobs/sha256:0", "/v2/../bundles", "/v2/%2e%2e/bundles", "/v2//", "/v2/a/blobs/uploads/"} {
				for _, header := range []map[string]string{nil, bearer, {"Authorization": "Basic eDp5"}} {
					resp, _, err := r.send(t, client, sending{method, path, header})
					if err != nil {
						t.Fatal(err)
					}
					if resp.StatusCode == 401 || resp.Header.Get("WWW-Authenticate") != "" {
						t.Errorf("%s %s: %d", method, path, resp.StatusCode)
					}
				}
			}
		}
	}
	r.api.change(func() { r.api.down = errors.New("down") })
	for _, header := range []map[string]string{nil, bearer} {
		if got := r.status(t, r.client(t, r.kubelet(t, "new")), sending{"GET", "/v2/", header}); got == 401 {
			t.Errorf("while the API is down: %d", got)
		}
	}
}

// Only nodes may read the list of images.
func TestListOfImages(t *testing.T) {
	r := start(t, nil)
	for name, c := range map[string]struct {
		cert   *tls.Certificate
		header map[string]string
		status int
	}{
		"nobody":         {nil, nil, 403},
		"a joining host": {nil, map[string]string{"Authorization": "Bearer " + token}, 403},
		"no node":        {r.kubelet(t, "other"), nil, 403},
		"a node":         {r.kubelet(t, node), nil, 200},
	} {
		resp, body, err := r.send(t, r.client(t, c.cert), sending{path: "/images", header: c.header})
		if err != nil || resp.StatusCode != c.status || strings.Contains(string(body), `[{"reference":"registry.k8s.io/app:v1"`) != (c.status == 200) {
			t.Errorf("%s: %v, %s, %v", name, resp, body, err)
		}
	}
}

// The TLS handshake refuses what the cluster's CA did not sign for clients.
func TestRefusedHandshakes(t *testing.T) {
	r := start(t, nil)
	for name, cert := range map[string]*tls.Certificate{
		"another cluster's": newAuthority(t).kubelet(t, node),
		"a server's":        r.issue(t, "system:node:"+node, []string{"system:nodes"}, x509.ExtKeyUsageServerAuth),
	} {
		resp, _, err := r.send(t, r.client(t, cert), sending{path: "/readyz"})
		if err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
	}
	for name, config := range map[string]*tls.Config{
		"HTTP/2 only": {NextProtos: []string{"h2"}},
		"TLS 1.1":     {MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
	} {
		config.InsecureSkipVerify = true
		conn, err := tls.Dial("tcp", r.connections.Addr().String(), config)
		if err == nil {
			conn.Close()
			t.Errorf("%s was accepted", name)
		} else if !strings.Contains(err.Error(), "remote error: tls: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client that can speak HTTP/2 speaks HTTP/1.1; one that insists is refused.
func TestOnlyHTTP1(t *testing.T) {
	r := start(t, nil)
	client := r.client(t, nil)
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	resp, _, err := r.send(t, client, sending{path: "/readyz"})
	if err != nil || resp.ProtoMajor != 1 || resp.StatusCode != 200 {
		t.Errorf("%v, %v", resp, err)
	}
	conn, err := tls.Dial("tcp", r.connections.Addr().String(), r.trust(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if status := raw(t, conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); !strings.HasPrefix(status, "HTTP/1.1 505 ") {
		t.Errorf("%q", status)
	}
}

// A node that is removed may not read any more; one that is new may, also if the watch is late.
func TestNodesChange(t *testing.T) {
	r := start(t, nil)
	client := r.client(t, r.kubelet(t, node))
	added := r.client(t, r.kubelet(t, "added"))
	if got := r.status(t, client, sending{path: "/v2/"}); got != 200 {
		t.Fatal(got)
	}
	r.api.mu.Lock()
	r.api.nodes = []string{"added"} // without an event
	r.api.mu.Unlock()
	if got := r.status(t, added, sending{path: "/v2/"}); got != 200 {
		t.Errorf("a new node: %d", got)
	}
	r.api.change(func() {})
	eventually(t, func() bool { return r.status(t, client, sending{path: "/v2/"}) == 403 })
}

// While the API is down, its last answers are used: nodes read, also after a restart. Nobody new reads.
func TestAPIDown(t *testing.T) {
	path, _, id := sample(t, 1)
	r := start(t, nil, path)
	listed := []config.KeptBundle{r.catalog.bundles()[0]}
	r.api.change(func() { r.api.list = &config.EmbeddedRegistry{Used: true, Bundles: listed} })
	eventually(t, func() bool {
		r.known.mu.Lock()
		defer r.known.mu.Unlock()
		return len(r.known.Bundles) == 1
	})
	check := func(when string) {
		t.Helper()
		for _, c := range []struct {
			cert   *tls.Certificate
			header map[string]string
			path   string
			want   int
		}{
			{r.kubelet(t, node), nil, "/v2/", 200},
			{r.kubelet(t, node), nil, "/bundles/" + id, 200},
			{r.kubelet(t, "new"), nil, "/v2/", 403},
			{r.kubelet(t, "new"), nil, "/bundles", 401},
			{nil, bearer, "/bundles", 503},
			{nil, nil, "/bundles", 401},
			{nil, nil, "/readyz", 200},
		} {
			if got := r.status(t, r.client(t, c.cert), sending{"GET", c.path, c.header}); got != c.want {
				t.Errorf("%s: %s: %d, want %d", when, c.path, got, c.want)
			}
		}
	}
	r.api.change(func() { r.api.down = errors.New("connection refused") })
	check("API down")
	if s := r.state(); s.API.Answered.IsZero() || s.API.Nodes != 1 {
		t.Errorf("%+v", s.API)
	}
	r.stop()
	r.service = newService(r.settings, r.api, r.service.images, r.log)
	r.run(t)
	check("after a restart")
	eventually(t, func() bool { return r.state().API.Failed == "connection refused" })
	if s := r.state(); !s.API.Answered.IsZero() || s.API.Nodes != 1 {
		t.Errorf("%+v", s.API)
	}
	// A damaged file is as none, and then nothing is known.
	r.stop()
	if err := os.WriteFile(r.settings.KnownPath(), []byte("\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.service = newService(r.settings, r.api, r.service.images, r.log)
	r.run(t)
	if got := r.status(t, r.client(t, r.kubelet(t, node)), sending{path: "/v2/"}); got != 503 {
		t.Errorf("when no node is known: %d", got)
	}
}

func raw(t *testing.T, conn *tls.Conn, request string) (status string) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1000)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	status, _, _ = strings.Cut(string(b[:n]), "\r\n")
	return status
}

// The chain has the CA, by whose key a joining host finds it. A renewed certificate and another CA need no restart.
func TestCertificatesChange(t *testing.T) {
	r := start(t, nil)
	chain := func() []*x509.Certificate {
		conn, err := tls.Dial("tcp", r.connections.Addr().String(), r.trust(nil))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates
	}
	first := chain()
	if len(first) != 2 || !first[1].Equal(r.cert) {
		t.Fatalf("the chain has %d certificates", len(first))
	}
	// A pair that does not fit, as in the middle of a renewal.
	if err := errors.Join(os.Remove(r.dir+"/apiserver.crt"), os.Rename(r.dir+"/apiserver.key", r.dir+"/former.key")); err != nil {
		t.Fatal(err)
	}
	if now := chain(); !now[0].Equal(first[0]) {
		t.Error("without the files, the certificate is another one")
	}
	r.ensure(t)
	if now := chain(); now[0].Equal(first[0]) || len(now) != 2 {
		t.Error("the renewed certificate is not used")
	}
	// A rotation: nodes with a certificate of either CA.
	next := newAuthority(t)
	kubelets := []*tls.Certificate{r.kubelet(t, node), next.kubelet(t, node)}
	if _, _, err := r.send(t, r.client(t, kubelets[1]), sending{path: "/v2/"}); err == nil {
		t.Error("before the rotation, the other CA is trusted")
	}
	r.addAuthority(t, next)
	if now := chain(); len(now) != 3 || !slices.ContainsFunc(now, next.cert.Equal) {
		t.Errorf("the chain has %d certificates", len(now))
	}
	for n, cert := range kubelets {
		if got := r.status(t, r.client(t, cert), sending{path: "/v2/"}); got != 200 {
			t.Errorf("CA %d of the rotation: %d", n, got)
		}
	}
}

// A token is reviewed once for many requests, and again after some seconds: one that was deleted does not live on.
func TestTokenIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{tokens: []string{token}}
		a := &access{api: api, answers: newAnswers()}
		who := func(token string) reader {
			r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
			is, err := a.who(r.WithContext(t.Context()))
			if err != nil {
				t.Error(err)
			}
			return is
		}
		for range 100 {
			if who(token) != joining {
				t.Fatal("the token is not valid")
			}
		}
		if api.reviews != 1 {
			t.Errorf("%d reviews", api.reviews)
		}
		api.tokens = nil
		time.Sleep(trueFor - 1)
		if who(token) != joining {
			t.Error("the answer was forgotten early")
		}
		time.Sleep(time.Nanosecond)
		if who(token) != nobody {
			t.Error("a deleted token is valid")
		}
		api.tokens = []string{token}
		if who(token) != nobody {
			t.Error("the answer was forgotten early")
		}
		time.Sleep(falseFor)
		if who(token) != joining || api.reviews != 3 {
			t.Errorf("a new token is not valid, %d reviews", api.reviews)
		}
	})
}

// Many tokens need bounded memory and few reviews at once; and a review that hangs does not hang the rest for ever.
func TestManyTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{blocking: make(chan struct{})}
		a := newAnswers()
		results := make(chan error)
		const many = 3 * maxAnswers
		for n := range many {
			go func() {
				_, err := a.get(t.Context(), asker{name: fmt.Sprint("client ", n)}, fmt.Sprint(n), func(ctx context.Context) (bool, error) { return api.ReviewToken(ctx, "") })
				results <- err
			}()
		}
		synctest.Wait()
		if api.reviews != askers {
			t.Errorf("%d reviews at once", api.reviews)
		}
		start := time.Now()
		for range many {
			if err := <-results; err == nil {
				t.Error("a review that hangs has an answer")
			}
		}
		if took := time.Since(start); took > askTimeout {
			t.Errorf("it took %s", took)
		}
		api.blocking = nil
		for n := range many {
			if _, err := a.get(t.Context(), asker{name: fmt.Sprint("client ", n)}, fmt.Sprint(n), func(ctx context.Context) (bool, error) { return api.ReviewToken(ctx, "") }); err != nil {
				t.Fatal(err)
			}
		}
		if len(a.known) > maxAnswers {
			t.Errorf("%d answers are kept", len(a.known))
		}
	})
}

// Tokens that one address invents stop neither the other addresses of its network, nor those that many addresses of a network invent the
// other networks.
func TestInventedTokensOfANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{blocking: make(chan struct{})}
		a := newAnswers()
		busy := map[string]int{}
		var mu sync.Mutex
		ask := func(address, network string, times int) {
			for n := range times {
				go func() {
					_, err := a.get(t.Context(), asker{address, network}, fmt.Sprint(address, n), func(ctx context.Context) (bool, error) { return api.ReviewToken(ctx, "") })
					if err == errBusy { // at once, and not after its time
						mu.Lock()
						busy[address]++
						mu.Unlock()
					}
				}()
			}
			synctest.Wait()
		}
		ask("2001:db8::1", "2001:db8::/64", 50)
		ask("2001:db8::2", "2001:db8::/64", 1)
		for n := range 20 {
			ask(fmt.Sprintf("2001:db8::a%d", n), "2001:db8::/64", 1)
		}
		ask("2001:db8:1::1", "2001:db8:1::/64", 1)
		ask("10.0.0.1", "10.0.0.1", 5)
		if busy["2001:db8::1"] != 50-maxAsked || busy["2001:db8::2"] != 0 || busy["2001:db8:1::1"] != 0 || busy["10.0.0.1"] != 5-maxAsked {
			t.Error(busy)
		}
		if got := busy["2001:db8::a19"]; got != 1 {
			t.Error("the network has no limit")
		}
		time.Sleep(2 * askTimeout)
		if len(a.asked) != 0 {
			t.Error(a.asked)
		}
	})
}

func TestList(t *testing.T) {
	first, data, id := sample(t, 1)
	second, _, other := sample(t, 2)
	r := start(t, nil, first, second)
	client := r.client(t, r.kubelet(t, node))
	list := func() (list registry.List) {
		resp, body, err := r.send(t, client, sending{path: "/bundles"})
		if err != nil || resp.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%v, %v: %s", resp, err, body)
		}
		if err := json.Unmarshal(body, &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	all := list().Bundles
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	byID := map[string]config.KeptBundle{all[0].ID: all[0], all[1].ID: all[1]}
	if b := byID[id]; b.Size != int64(len(data)) || b.KubernetesVersion != "v1.37.1" || b.Platform != "linux/amd64" || len(b.ManifestSHA256) != 64 {
		t.Errorf("%+v", b)
	}
	// The order is the cluster's, for clients and for images.
	for _, ids := range [][]string{{id, other}, {other, id}} {
		r.api.change(func() {
			r.api.list = &config.EmbeddedRegistry{Used: true, Bundles: []config.KeptBundle{byID[ids[0]], byID[ids[1]]}}
		})
		eventually(t, func() bool { return list().Bundles[0].ID == ids[0] && slices.Equal(r.images.ids(), ids) })
	}
}
