package service

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"airlift/installer/registry"
)

// maxRequests limits how many requests of known readers are served at once, and so the memory: each needs some 80 KiB.
const maxRequests = 384

// bodyTimeout is how long the server reads a body, which no request needs.
const bodyTimeout = 5 * time.Second

// ServeHTTP serves all requests. Paths are compared as they are, without "..". A connection ends with the answer to whoever is
// not known: otherwise requests without a reader would hold it.
func (s *service) ServeHTTP(plain http.ResponseWriter, r *http.Request) {
	w := newProgressWriter(plain, &s.sent)
	if !s.connections.isIdentified(r) {
		w.Header().Set("Connection", "close")
	}
	if r.ContentLength != 0 {
		_ = w.control.SetReadDeadline(time.Now().Add(bodyTimeout))
		w.Header().Set("Connection", "close")
	}
	s.route(w, r)
}

func (s *service) route(w http.ResponseWriter, r *http.Request) {
	images := r.URL.Path == registry.ImagesPath || r.URL.Path == "/v2" || strings.HasPrefix(r.URL.Path, "/v2/")
	id, file := strings.CutPrefix(r.URL.Path, "/bundles/")
	switch {
	case r.ProtoMajor != 1: // the preface of HTTP/2
		w.Header().Set("Connection", "close")
		refuse(w, false, http.StatusHTTPVersionNotSupported, "", "only HTTP/1.1 is served")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, images, http.StatusMethodNotAllowed, "UNSUPPORTED", "the registry is read-only")
	case r.ContentLength != 0:
		refuse(w, images, http.StatusBadRequest, "UNSUPPORTED", "the request has a body")
	case !s.catalog.opened.Load() || images && !s.catalog.published.Load():
		unavailable(w, "the service is starting")
	case r.URL.Path == "/readyz":
		_, _ = io.WriteString(w, "ok\n")
	case images:
		s.serveImages(w, r)
	case file || r.URL.Path == "/bundles":
		s.serveBundles(w, r, id)
	default:
		http.NotFound(w, r)
	}
}

// unavailable answers a request that another control plane may serve.
func unavailable(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// refuse answers with an error, at /v2 in the form of OCI distribution.
func refuse(w http.ResponseWriter, images bool, status int, code, message string) {
	if !images {
		http.Error(w, message, status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	type problem struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	_ = json.NewEncoder(w).Encode(map[string][]problem{"errors": {{code, message}}})
}

// identify returns who sent a request, and takes a slot for a reader who is known: the caller calls release. Otherwise it has
// answered. A refusal at /v2 is never 401: containerd would then send the secret of the pod.
func (s *service) identify(w http.ResponseWriter, r *http.Request, images bool) (release func(), known bool) {
	who, err := s.access.who(r)
	switch {
	case err != nil:
		s.log.Debug("it is not known who sent a request", "from", r.RemoteAddr, "error", err)
		unavailable(w, "the API does not answer")
		return nil, false
	case who == nobody || images && who != member:
		s.refused.Add(1)
		w.Header().Set("Connection", "close")
		if images {
			refuse(w, true, http.StatusForbidden, "DENIED", "only nodes of the cluster may read images, with the client certificate of their kubelet")
			return nil, false
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="airlift"`)
		http.Error(w, "only nodes of the cluster, with the client certificate of their kubelet, and joining hosts, with a bootstrap token, may read bundles", http.StatusUnauthorized)
		return nil, false
	}
	s.connections.identify(r)
	w.Header().Del("Connection")
	select {
	case s.requests <- struct{}{}:
		return func() { <-s.requests }, true
	default:
		unavailable(w, "this control plane serves too many requests")
		return nil, false
	}
}

// serveImages serves the list of images, and what is below /v2.
func (s *service) serveImages(w http.ResponseWriter, r *http.Request) {
	release, known := s.identify(w, r, true)
	if !known {
		return
	}
	defer release()
	if r.URL.Path == registry.ImagesPath {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.images.Served())
		return
	}
	s.images.ServeHTTP(w, r)
}

// serveBundles serves the list, or with an ID one file.
func (s *service) serveBundles(w http.ResponseWriter, r *http.Request, id string) {
	release, known := s.identify(w, r, false)
	if !known {
		return
	}
	defer release()
	if r.URL.Path == "/bundles" {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(registry.List{Bundles: s.catalog.bundles()})
		return
	}
	s.serveFile(w, r, id)
}

// serveFile serves a bundle, or one range of it. Its bytes are not decoded, but each piece is compared with its digest:
// if it does not match, the answer ends early, and a client continues with another control plane.
func (s *service) serveFile(w http.ResponseWriter, r *http.Request, id string) {
	kept, size := s.catalog.find(id)
	if kept == nil {
		http.Error(w, "this control plane does not keep the bundle", http.StatusNotFound)
		return
	}
	if strings.Contains(r.Header.Get("Range"), ",") {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		http.Error(w, "only one range can be read at once", http.StatusRequestedRangeNotSatisfiable)
		return
	}
	w.Header().Set("ETag", `"`+id+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(kept, 0, size))
}
