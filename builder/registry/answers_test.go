package registry_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"airlift/builder/registry"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

const page = "\n<!DOCTYPE html>\n<html><head><title>Log in</title></head></html>\n"

func sendPage(w http.ResponseWriter) bool {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, page)
	return true
}

// askForToken answers the ping with a token service.
func askForToken(w http.ResponseWriter, realm string) bool {
	w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`"`)
	w.WriteHeader(http.StatusUnauthorized)
	return true
}

// What else may answer for a registry: login pages, proxies, web servers.
// manifestIs answers each request for a manifest with this text.
func manifestIs(text string) func(http.ResponseWriter, string) bool {
	return func(w http.ResponseWriter, target string) bool {
		if !strings.Contains(target, "/manifests/") {
			return false
		}
		_, _ = io.WriteString(w, text)
		return true
	}
}

// manifestStatus answers each request for a manifest with this status.
func manifestStatus(code int) func(http.ResponseWriter, string) bool {
	return func(w http.ResponseWriter, target string) bool {
		if !strings.Contains(target, "/manifests/") {
			return false
		}
		w.WriteHeader(code)
		return true
	}
}

func TestAnswersThatAreNoRegistrys(t *testing.T) {
	good := fakesites.Image(t, "amd64", "x")
	m, err := good.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	isPing := func(target string) bool { return strings.HasSuffix(target, "/v2/") }
	for name, c := range map[string]struct {
		answer     func(w http.ResponseWriter, target string) bool
		want, hint string
	}{
		"page everywhere": {func(w http.ResponseWriter, _ string) bool { return sendPage(w) }, "returned a web page", "HTTPS_PROXY"},
		"page as manifest": {func(w http.ResponseWriter, target string) bool {
			return strings.Contains(target, "/manifests/") && sendPage(w)
		}, "returned a web page", "HTTPS_PROXY"},
		"nothing as manifest": {manifestIs(""), "not JSON", "HTTPS_PROXY"},
		"text as manifest":    {manifestIs("please log in"), "not JSON", "HTTPS_PROXY"},
		"half a manifest":     {manifestIs(`{"errors"`), "not JSON, or cut off", "HTTPS_PROXY"},
		"list as manifest":    {manifestIs("[]"), "not an image or an image index", "skopeo inspect --raw docker://"},
		"empty manifest":      {manifestIs("{}"), "not an image or an image index", "skopeo inspect --raw docker://"},
		"page as config": {func(w http.ResponseWriter, target string) bool {
			return strings.HasSuffix(target, m.Config.Digest.String()) && sendPage(w)
		}, "returned a web page", "HTTPS_PROXY"},
		"page as layer": {func(w http.ResponseWriter, target string) bool {
			return strings.HasSuffix(target, m.Layers[1].Digest.String()) && sendPage(w)
		}, "returned a web page", "HTTPS_PROXY"},
		"too many requests": {manifestStatus(http.StatusTooManyRequests), "429 Too Many Requests", "docker login"},
		"broken registry":   {manifestStatus(http.StatusBadGateway), "502 Bad Gateway", "try again later"},
		"page with 403": {func(w http.ResponseWriter, target string) bool {
			if isPing(target) {
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, page)
			}
			return isPing(target)
		}, "403 Forbidden, and a web page (HTML)", "HTTPS_PROXY"},
		"page as token": {func(w http.ResponseWriter, target string) bool {
			return isPing(target) && askForToken(w, "https://ghcr.io/token") || strings.HasSuffix(target, "/token") && sendPage(w)
		}, "not JSON", "HTTPS_PROXY"},
		"only the ping is not found": {func(w http.ResponseWriter, target string) bool {
			if isPing(target) {
				http.NotFound(w, nil)
			}
			return isPing(target)
		}, "is not a registry: /v2/ was not found", "curl -I https://"},
		"token service at a private address": {func(w http.ResponseWriter, target string) bool {
			return isPing(target) && askForToken(w, "https://10.1.2.3/token")
		}, "private", "skopeo copy docker://" + ref},
		"token service without TLS": {func(w http.ResponseWriter, target string) bool {
			return isPing(target) && askForToken(w, "ftp://auth.example.com/token")
		}, "realm", "skopeo copy docker://" + ref},
	} {
		r := newRig(t)
		r.Push(ref, good)
		r.Answer = func(w http.ResponseWriter, _ *http.Request, target string) bool { return c.answer(w, target) }
		_, err := r.pull(r.client("amd64"), ref)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Hint(err), c.hint) {
			t.Errorf("%s: %v (hint %q), want %q and %q", name, err, fault.Hint(err), c.want, c.hint)
		}
	}
}

func TestRefusedPush(t *testing.T) {
	content := []byte("content")
	blob := registry.Blob{Digest: hashOf(content).String(), Size: int64(len(content)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }}
	for name, c := range map[string]struct {
		method string
		status int
		body   string
		hint   string
	}{
		"size":          {"PATCH", 413, page, "client_max_body_size"},
		"quota of ours": {"POST", 403, `{"errors":[{"code":"DENIED","message":"adding 1.2 MiB of storage resource, which when updated to current usage of 9.9 MiB will exceed the configured upper limit of 10.0 MiB."}]}`, "quota"},
		"quota of Quay": {"PUT", 403, `{"errors":[{"code":"DENIED","message":"Quota has been exceeded on namespace"}]}`, "quota"},
		"full disk":     {"PATCH", 507, "", "space"},
		"denied":        {"POST", 403, `{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}`, "docker login"},
		"HEAD":          {"HEAD", 405, "", "HEAD"},
		"HEAD, 501":     {"HEAD", 501, "", "HEAD"},
		"read-only":     {"POST", 405, `{"errors":[{"code":"UNSUPPORTED","message":"The operation is unsupported."}]}`, "read-only"},
		"page":          {"POST", 200, page, "HTTPS_PROXY"},
		"page, 403":     {"POST", 403, page, "HTTPS_PROXY"},
	} {
		r := newRig(t)
		r.Answer = func(w http.ResponseWriter, q *http.Request, target string) bool {
			if q.Method != c.method || !strings.Contains(target, "/blobs/") {
				return false
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
			return true
		}
		repo, err := r.client("amd64").Repository(t.Context(), "registry.k8s.io/team/app")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = repo.HasBlob(t.Context(), blob.Digest); err == nil {
			err = repo.PushBlob(t.Context(), blob, func(int64) {})
		}
		if err == nil || !strings.Contains(fault.Hint(err), c.hint) || strings.Contains(err.Error(), "<html>") {
			t.Errorf("%s: %v (hint %q), want %q", name, err, fault.Hint(err), c.hint)
		}
	}
}

func TestPushToNoRegistry(t *testing.T) {
	r := newRig(t)
	r.Answer = func(w http.ResponseWriter, _ *http.Request, target string) bool {
		http.NotFound(w, nil)
		return true
	}
	_, err := r.client("amd64").Repository(t.Context(), "registry.k8s.io/team/app")
	if err == nil || !strings.Contains(err.Error(), "is not a registry: /v2/ was not found") || !strings.Contains(fault.Hint(err), "curl -I") {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
}
