package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"airlift/bundle"
	"airlift/bundle/blobs/ondemand"
)

// A problem is an error of the protocol.
type problem struct {
	status     int
	Code       string `json:"code"`
	Message    string `json:"message"`
	retryAfter time.Duration
}

func fail(status int, code, format string, args ...any) *problem {
	return &problem{status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range []string{"Docker-Content-Digest", "Content-Length", "Accept-Ranges", "Etag"} {
		h.Del(name)
	}
	h.Set("Content-Type", "application/json")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(p.retryAfter.Seconds())))
	}
	if p.status == http.StatusMethodNotAllowed {
		h.Set("Allow", "GET, HEAD")
	}
	w.WriteHeader(p.status)
	_ = json.NewEncoder(w).Encode(map[string][]*problem{"errors": {p}})
}

// ServeHTTP serves GET and HEAD of /v2/. The caller has checked that the client may read all images.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if p := r.serve(w, req); p != nil {
		p.write(w)
	}
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request) *problem {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		return fail(http.StatusMethodNotAllowed, "UNSUPPORTED", "the registry is read-only")
	}
	t, ok := parsePath(req.URL)
	if !ok {
		return fail(http.StatusNotFound, "NAME_INVALID", "the path names no repository")
	}
	if t.kind == "" {
		return document200(w, "application/json", []byte("{}"))
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return fail(http.StatusBadRequest, "UNSUPPORTED", "the query is invalid")
	}
	ns := query.Get("ns")
	full, ok := repositoryName(ns, t.name)
	if !ok {
		return fail(http.StatusNotFound, "NAME_INVALID", "%q with the registry %q is not a name of a repository", t.name, ns)
	}
	if ns != "" {
		w.Header().Set("OCI-Namespace", ns)
	}
	repository := r.catalog.Load().repositories[full]
	if repository == nil {
		return fail(http.StatusNotFound, "NAME_UNKNOWN", "no bundle has an image of %s", full)
	}
	switch t.kind {
	case "tags":
		return serveTags(w, t.name, query, repository)
	case "referrers":
		return serveReferrers(w, t.ref)
	case "manifests":
		return r.serveManifest(w, req, repository, t.ref)
	}
	return r.serveBlob(w, req, repository, t.ref)
}

// document200 writes a short answer.
func document200(w http.ResponseWriter, mediaType string, content []byte) *problem {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(content) // net/http ends the connection of a client that is gone
	return nil
}

func json200(w http.ResponseWriter, mediaType string, v any) *problem {
	content, err := json.Marshal(v)
	if err != nil {
		return fail(http.StatusInternalServerError, "UNKNOWN", "%v", err)
	}
	return document200(w, mediaType, content)
}

func serveTags(w http.ResponseWriter, name string, query url.Values, r *repository) *problem {
	n := -1
	if text := query.Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 0 {
			return fail(http.StatusBadRequest, "PAGINATION_NUMBER_INVALID", "%q is not a number of tags", text)
		}
	}
	tags, more := r.sortedTags(n, query.Get("last"))
	if more && n > 0 {
		next := url.Values{"n": {strconv.Itoa(n)}, "last": {tags[n-1]}}
		if ns := query.Get("ns"); ns != "" {
			next.Set("ns", ns)
		}
		w.Header().Set("Link", fmt.Sprintf("</v2/%s/tags/list?%s>; rel=\"next\"", name, next.Encode()))
	}
	return json200(w, "application/json", map[string]any{"name": name, "tags": append([]string{}, tags...)})
}

// serveReferrers answers that nothing refers to an image: bundles have no such artifacts.
func serveReferrers(w http.ResponseWriter, digest string) *problem {
	if !digestForm.MatchString(digest) {
		return fail(http.StatusBadRequest, "DIGEST_INVALID", "%q is not a digest", digest)
	}
	const mediaType = "application/vnd.oci.image.index.v1+json"
	return document200(w, mediaType, []byte(`{"schemaVersion":2,"mediaType":"`+mediaType+`","manifests":[]}`))
}

// serveManifest sends an index or a manifest. It ignores a range.
func (r *Registry) serveManifest(w http.ResponseWriter, req *http.Request, repository *repository, ref string) *problem {
	if !tagForm.MatchString(ref) && !digestForm.MatchString(ref) {
		return fail(http.StatusNotFound, "MANIFEST_INVALID", "%q is neither a tag nor a digest", ref)
	}
	b, ok := repository.manifest(ref)
	if !ok {
		return fail(http.StatusNotFound, "MANIFEST_UNKNOWN", "no bundle has %s of this repository", ref)
	}
	describe(w, b.Source.Descriptor)
	w.Header().Set("Content-Type", b.Source.MediaType)
	if req.Method == http.MethodHead {
		w.Header().Set("Content-Length", strconv.FormatInt(b.Source.Size, 10))
		w.WriteHeader(http.StatusOK)
		return nil
	}
	return r.send(w, req, b, byteRange{size: b.Source.Size})
}

// describe sets the headers that identify the content.
func describe(w http.ResponseWriter, d bundle.Descriptor) {
	w.Header().Set("Docker-Content-Digest", d.Digest)
	w.Header().Set("Etag", etag(d))
}

func etag(d bundle.Descriptor) string { return `"` + d.Digest + `"` }

func (r *Registry) serveBlob(w http.ResponseWriter, req *http.Request, repository *repository, digest string) *problem {
	if !digestForm.MatchString(digest) {
		return fail(http.StatusBadRequest, "DIGEST_INVALID", "%q is not a digest", digest)
	}
	b, ok := repository.blobs[digest]
	if !ok {
		return fail(http.StatusNotFound, "BLOB_UNKNOWN", "no bundle has the blob %s of this repository", digest)
	}
	describe(w, b.Source.Descriptor)
	w.Header().Set("Accept-Ranges", "bytes")
	w.Header().Set("Content-Type", "application/octet-stream")
	part := byteRange{size: b.Source.Size}
	if condition := req.Header.Get("If-Range"); condition == "" || condition == etag(b.Source.Descriptor) {
		if part, ok = parseRange(req.Header.Get("Range"), b.Source.Size); !ok {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", b.Source.Size))
			return fail(http.StatusRequestedRangeNotSatisfiable, "SIZE_INVALID", "the blob has %d bytes", b.Source.Size)
		}
	}
	if req.Method == http.MethodHead {
		part.header(w)
		return nil
	}
	return r.send(w, req, b, part)
}

// send sends a part of a blob. The blob is open, or is being made, before the status is sent.
func (r *Registry) send(w http.ResponseWriter, req *http.Request, b ondemand.Blob, part byteRange) *problem {
	ctx, cancel := context.WithTimeout(req.Context(), patience)
	defer cancel()
	select {
	case r.streams <- struct{}{}:
		defer func() { <-r.streams }()
	case <-ctx.Done():
		return r.unavailable(req, b, ctx.Err())
	}
	content, err := r.store.Get(ctx, b)
	if err != nil {
		return r.unavailable(req, b, err)
	}
	defer content.Close()
	part.header(w)
	if err := copyTo(w, io.LimitReader(content.From(req.Context(), part.first), part.length()), part.length()); err != nil {
		panic(http.ErrAbortHandler) // the client gets less than the announced length
	}
	return nil
}

// copyTo sends the headers and then n bytes, which may take any time.
func copyTo(w http.ResponseWriter, content io.Reader, n int64) error {
	out := &writer{w, http.NewResponseController(w)}
	defer out.connection.SetWriteDeadline(time.Time{})
	if err := out.Flush(); err != nil {
		return err
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	sent, err := io.CopyBuffer(out, content, *buf)
	if err == nil && sent < n {
		err = io.ErrUnexpectedEOF
	}
	return cmp.Or(err, out.Flush())
}

// unavailable is the answer for a blob that cannot be sent at this time. The client may ask another server.
func (r *Registry) unavailable(req *http.Request, b ondemand.Blob, err error) *problem {
	switch {
	case errors.Is(err, ondemand.ErrImpossible):
		return fail(http.StatusNotFound, "BLOB_UNKNOWN", "%v", err)
	case req.Context().Err() != nil:
		panic(http.ErrAbortHandler)
	}
	r.log.Warn("a request was refused", "digest", b.Source.Digest, "error", err)
	p := fail(http.StatusServiceUnavailable, "UNAVAILABLE", "the content cannot be sent at this time")
	p.retryAfter = 10 * time.Second
	return p
}

// buffers have the size of a TLS record.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// A writer ends the connection of a client that takes longer than stall for a buffer. A whole response may take
// longer.
type writer struct {
	io.Writer
	connection *http.ResponseController
}

const stall = time.Minute

func (w *writer) Write(p []byte) (int, error) {
	_ = w.connection.SetWriteDeadline(time.Now().Add(stall))
	return w.Writer.Write(p)
}

func (w *writer) Flush() error {
	_ = w.connection.SetWriteDeadline(time.Now().Add(stall))
	return w.connection.Flush()
}
