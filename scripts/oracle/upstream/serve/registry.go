package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sort"
	"strconv"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/scripts/oracle/upstream/image"
)

// registry is the read side of an OCI registry: manifests by tag and digest,
// blobs, tag lists.
//
// It does not use go-containerregistry's in-memory registry, which rejects an index with a
// platform that it does not have, as in every mirror of a single platform. The tests use
// go-containerregistry's client.
type registry struct {
	repositories map[string]*repository
	blobs        func(v1.Hash) string // digest => path
}

type repository struct {
	manifests map[string]image.Manifest // by tag and by digest
	blobs     map[string]bool           // digests of the configs and layers
}

func newRegistry(manifests []image.Manifest, blobs func(v1.Hash) string) (*registry, error) {
	r := &registry{make(map[string]*repository), blobs}
	for _, m := range manifests {
		repo := r.repositories[m.Repository]
		if repo == nil {
			repo = &repository{make(map[string]image.Manifest), make(map[string]bool)}
			r.repositories[m.Repository] = repo
		}
		for _, ref := range append([]string{m.Digest.String()}, m.Tags...) {
			repo.manifests[ref] = m
		}
		if m.MediaType.IsImage() {
			var parsed v1.Manifest
			if err := json.Unmarshal(m.Data, &parsed); err != nil {
				return nil, fmt.Errorf("reading the manifest %s of %s: %w", m.Digest, m.Repository, err)
			}
			for _, d := range append(parsed.Layers, parsed.Config) {
				repo.blobs[d.Digest.String()] = true
			}
		}
	}
	return r, nil
}

// apiPath matches /v2/NAME/manifests/REF, /v2/NAME/blobs/DIGEST and /v2/NAME/tags/list.
var apiPath = regexp.MustCompile(`^/v2/([a-z0-9/._-]+)/(manifests|blobs|tags)/([^/]+)$`)

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		registryError(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this registry is read-only")
		return
	}
	if req.URL.Path == "/v2/" {
		fmt.Fprint(w, "{}")
		return
	}
	parts := apiPath.FindStringSubmatch(req.URL.Path)
	if parts == nil {
		registryError(w, http.StatusNotFound, "UNSUPPORTED", "no such endpoint")
		return
	}
	name, kind, ref := parts[1], parts[2], parts[3]
	repo := r.repositories[name]
	if repo == nil {
		registryError(w, http.StatusNotFound, "NAME_UNKNOWN", fmt.Sprintf("repository %q is not known", name))
		return
	}
	switch kind {
	case "manifests":
		repo.serveManifest(w, req, ref)
	case "blobs":
		r.serveBlob(w, req, repo, ref)
	case "tags":
		repo.serveTags(w, req, name)
	}
}

func (repo *repository) serveManifest(w http.ResponseWriter, req *http.Request, ref string) {
	m, ok := repo.manifests[ref]
	if !ok {
		registryError(w, http.StatusNotFound, "MANIFEST_UNKNOWN", fmt.Sprintf("manifest %q is not known", ref))
		return
	}
	w.Header().Set("Content-Type", string(m.MediaType))
	w.Header().Set("Docker-Content-Digest", m.Digest.String())
	w.Header().Set("Content-Length", strconv.Itoa(len(m.Data)))
	if req.Method == http.MethodGet {
		w.Write(m.Data)
	}
}

func (r *registry) serveBlob(w http.ResponseWriter, req *http.Request, repo *repository, ref string) {
	digest, err := v1.NewHash(ref)
	if err != nil || !repo.blobs[ref] {
		registryError(w, http.StatusNotFound, "BLOB_UNKNOWN", fmt.Sprintf("blob %q is not known", ref))
		return
	}
	w.Header().Set("Docker-Content-Digest", ref)
	File{Path: r.blobs(digest)}.serve(w, req)
}

// serveTags pages as in the distribution specification: n tags after last.
func (repo *repository) serveTags(w http.ResponseWriter, req *http.Request, name string) {
	tags := []string{}
	for _, m := range repo.manifests {
		tags = append(tags, m.Tags...)
	}
	sort.Strings(tags)
	tags = slices.Compact(tags) // each manifest is also in the map by digest
	query := req.URL.Query()
	if last := query.Get("last"); last != "" {
		tags = slices.DeleteFunc(tags, func(t string) bool { return t <= last })
	}
	if n, err := strconv.Atoi(query.Get("n")); err == nil && n > 0 && n < len(tags) {
		tags = tags[:n]
		w.Header().Set("Link", fmt.Sprintf(`</v2/%s/tags/list?n=%d&last=%s>; rel="next"`, name, n, tags[n-1]))
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"name": name, "tags": tags})
}

// registryError answers with an error in the form of the distribution specification.
func registryError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{
		"errors": []map[string]string{{"code": code, "message": message}},
	})
}

// blobFile returns the file of a blob in any repository, for CDNs.
func (r *registry) blobFile(ref string) (File, bool) {
	digest, err := v1.NewHash(ref)
	if err != nil {
		return File{}, false
	}
	for _, repo := range r.repositories {
		if repo.blobs[ref] {
			path := r.blobs(digest)
			_, err := os.Stat(path)
			return File{Path: path}, err == nil
		}
	}
	return File{}, false
}
