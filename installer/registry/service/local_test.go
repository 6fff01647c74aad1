package service

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"

	"airlift/installer/daemon"
	"airlift/installer/registry/images"
	"airlift/scripts/fixtures/testbundle"
)

// Requests of this host, at a socket: the state, and a refresh after a bundle was placed.
func TestSocket(t *testing.T) {
	path, _, id := sample(t, 1)
	r := start(t, nil)
	socket := filepath.Join(t.TempDir(), "socket")
	l, err := daemon.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- daemon.Serve(ctx, l, r.local()) }()
	send := func(method, target string) *http.Response {
		t.Helper()
		resp, err := daemon.Request(t.Context(), socket, method, target)
		if err != nil || resp == nil {
			t.Fatal(resp, err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	place(t, r.copies.store, path)
	if got := send(http.MethodPost, "/refresh").StatusCode; got != 200 {
		t.Errorf("refresh: %d", got)
	}
	if got := r.status(t, r.client(t, r.kubelet(t, node)), sending{path: "/bundles/" + id}); got != 200 {
		t.Errorf("right after the refresh: %d", got)
	}
	var state State
	if err := json.NewDecoder(send(http.MethodGet, "/status").Body).Decode(&state); err != nil {
		t.Fatal(err)
	}
	if !state.Serves(id) || state.BytesSent == 0 || state.Connections == 0 || state.API.Answered.IsZero() || state.API.Nodes != 1 {
		t.Errorf("%+v", state)
	}
	if got := send(http.MethodGet, "/refresh").StatusCode; got != 405 {
		t.Errorf("GET /refresh: %d", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if resp, err := daemon.Request(t.Context(), socket, http.MethodGet, "/status"); resp != nil || err != nil {
		t.Errorf("without a process: %v, %v", resp, err)
	}
}

// The images of a kept bundle are served to nodes only, with the upstream registry in the query or in the path.
func TestImages(t *testing.T) {
	b := testbundle.NewImages("images")
	b.Add(t, "site.example/app:1", "site.example/app:1", nil, testbundle.Layer(t, "file", "content"))
	path := b.Write(t, "bundle").File.Path()
	r := start(t, func(r *rig) {
		r.service = newService(r.settings, r.api, images.New(images.Options{Cache: r.settings.CacheDirectory(), Limit: 1 << 20, Log: r.log}), r.log)
	}, path)
	member, joiner := r.client(t, r.kubelet(t, node)), r.client(t, nil)
	for _, path := range []string{"/v2/app/manifests/1?ns=site.example", "/v2/site.example/app/manifests/1"} {
		resp, _, err := r.send(t, member, sending{path: path})
		if err != nil || resp.StatusCode != 200 || resp.Header.Get("Docker-Content-Digest") != b.Manifest.Images[0].Target.Digest {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
		if got := r.status(t, joiner, sending{path: path, header: bearer}); got != 403 {
			t.Errorf("%s with a token: %d", path, got)
		}
	}
	if got := r.status(t, member, sending{path: "/v2/app/manifests/2?ns=site.example"}); got != 404 {
		t.Errorf("another tag: %d", got)
	}
}

// Bundles are served at once, also if a start of the images takes long: until then, requests for images get 503.
func TestImagesStartSlowly(t *testing.T) {
	path, _, id := sample(t, 1)
	r := start(t, nil, path)
	r.catalog.published.Store(false)
	client := r.client(t, r.kubelet(t, node))
	for path, want := range map[string]int{"/bundles/" + id: 200, "/bundles": 200, "/readyz": 200, "/v2/": 503} {
		if got := r.status(t, client, sending{path: path}); got != want {
			t.Errorf("%s before the images: %d, want %d", path, got, want)
		}
	}
	r.catalog.opened.Store(false)
	for _, path := range []string{"/bundles/" + id, "/bundles", "/readyz", "/v2/"} {
		if got := r.status(t, client, sending{path: path}); got != 503 {
			t.Errorf("%s before the files are open: %d", path, got)
		}
	}
	r.catalog.set(r.catalog.files)
	eventually(t, func() bool { return r.status(t, client, sending{path: "/v2/"}) == 200 })
}
