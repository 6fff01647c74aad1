package upstreamsig_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/builder/fetch"
	"airlift/builder/upstreamsig"
	"airlift/scripts/fixtures/fakesigstore"
)

// rootClient requests the trusted root from a repository.
func rootClient(t *testing.T, r *fakesigstore.Repository) *fetch.Client {
	t.Helper()
	cache, err := fetch.OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m, err := fetch.ParseMirror(r.Mirror())
	if err != nil {
		t.Fatal(err)
	}
	mirrors, err := fetch.NewMirrors(http.DefaultTransport.(*http.Transport).Clone(), []fetch.Mirror{m})
	if err != nil {
		t.Fatal(err)
	}
	return fetch.New(cache, mirrors)
}

// tomorrow lets the day pass after which the root is requested again.
func tomorrow(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "tuf-repo-cdn.sigstore.dev.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	year := time.Now().Format("2006-")
	if !bytes.Contains(text, []byte(year)) {
		t.Fatalf("no time in %s", text)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(year), []byte("2001-"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFetchRoot(t *testing.T) {
	t.Parallel()
	first, second := fakesigstore.New(t).TrustedRoot(), fakesigstore.New(t).TrustedRoot()
	r := fakesigstore.NewRepository(t, first, time.Now().Add(time.Hour))
	c, dir := rootClient(t, r), t.TempDir()
	want := func(what string, root []byte) {
		t.Helper()
		got, err := upstreamsig.FetchRoot(t.Context(), c, dir, r.Anchor)
		if err != nil || !bytes.Equal(got, root) {
			t.Errorf("%s: %v", what, err)
		}
	}
	want("at first", first)
	r.Publish(second, time.Now().Add(time.Hour))
	asked := r.Requests()
	want("the same day", first)
	if r.Requests() != asked {
		t.Error("the root was requested again on the same day")
	}
	tomorrow(t, dir)
	want("the next day", second)
	tomorrow(t, dir)
	r.Close()
	want("without the server", second)
}

// What has expired is not used, also without the server.
func TestFetchRootExpired(t *testing.T) {
	t.Parallel()
	root := fakesigstore.New(t).TrustedRoot()
	r := fakesigstore.NewRepository(t, root, time.Now().Add(3*time.Second))
	c, dir := rootClient(t, r), t.TempDir()
	if _, err := upstreamsig.FetchRoot(t.Context(), c, dir, r.Anchor); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if _, err := upstreamsig.FetchRoot(t.Context(), c, dir, r.Anchor); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("with an expired timestamp: %v", err)
	}
	r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := upstreamsig.FetchRoot(ctx, c, dir, r.Anchor); err == nil {
		t.Error("an expired root is used without the server")
	}
}

// A mirror cannot replace the trusted root.
func TestFetchRootOfAnotherRepository(t *testing.T) {
	t.Parallel()
	r := fakesigstore.NewRepository(t, fakesigstore.New(t).TrustedRoot(), time.Now().Add(time.Hour))
	if _, err := upstreamsig.FetchRoot(t.Context(), rootClient(t, r), t.TempDir(), nil); err == nil {
		t.Error("a repository without sigstore's keys is accepted")
	}
}
