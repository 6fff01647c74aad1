package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/scripts/oracle/upstream/image"
)

// Content is the content of the sites.
type Content struct {
	Manifests map[string][]image.Manifest // host => manifests
	Files     map[string]map[string]File  // host => path => file
	Blob      func(v1.Hash) string        // digest => path on disk
}

// site is one host: a site that users know, or a target of redirects.
type site struct {
	host    string
	cdn     bool // only a target of redirects
	handler func(at locations) (http.Handler, error)
}

// locations are the base URLs of the hosts.
type locations map[string]string

// The targets of the sites' redirects. The real targets contain region names and change; these are
// examples.
const (
	artifactRegistry = "us-west1-docker.pkg.dev"                         // registry.k8s.io: manifests, tags
	imageBucket      = "prod-registry-k8s-io-us-east-1.s3.amazonaws.com" // registry.k8s.io: blobs
	packageCDN       = "pkg-containers.githubusercontent.com"            // ghcr.io: blobs
	kubernetesCDN    = "cdn.dl.k8s.io"                                   // dl.k8s.io
	releaseCDN       = "release-assets.githubusercontent.com"            // github.com
	hubCDN           = "production.cloudfront.docker.com"                // docker.io: blobs
)

func (c Content) sites() []site {
	list := []site{
		{"registry.k8s.io", false, c.registryK8sIO},
		{"ghcr.io", false, c.ghcr},
		{"dl.k8s.io", false, c.dlK8sIO},
		{"github.com", false, c.github},
		{artifactRegistry, true, c.artifactRegistry},
		{imageBucket, true, c.imageBucket},
		{packageCDN, true, c.packageCDN},
		{kubernetesCDN, true, c.kubernetesCDN},
		{releaseCDN, true, c.releaseCDN},
	}
	if len(c.Manifests["docker.io"]) > 0 { // add-ons
		list = append(list, site{"docker.io", false, c.hub}, site{hubCDN, true, c.hubCDN})
	}
	return list
}

// repositoryPrefix is the path of registry.k8s.io's images in its backend.
const repositoryPrefix = "k8s-artifacts-prod/images/"

// registryK8sIO only redirects: requests for blobs to a bucket and all others to its backend,
// with 307 (kubernetes/registry.k8s.io, cmd/archeio/docs/request-handling.md).
func (c Content) registryK8sIO(at locations) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		rest, api := strings.CutPrefix(req.URL.Path, "/v2/")
		parts := apiPath.FindStringSubmatch(req.URL.Path)
		switch {
		case api && rest == "":
			w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
			fmt.Fprint(w, "{}")
		case !api || parts == nil:
			http.NotFound(w, req)
		case parts[2] == "blobs":
			http.Redirect(w, req, at[imageBucket]+"/containers/images/"+parts[3], http.StatusTemporaryRedirect)
		default:
			target := at[artifactRegistry] + "/v2/" + repositoryPrefix + rest
			if req.URL.RawQuery != "" {
				target += "?" + req.URL.RawQuery
			}
			http.Redirect(w, req, target, http.StatusTemporaryRedirect)
		}
	}), nil
}

func (c Content) artifactRegistry(locations) (http.Handler, error) {
	r, err := newRegistry(c.Manifests["registry.k8s.io"], c.Blob)
	if err != nil {
		return nil, err
	}
	prefixed := make(map[string]*repository)
	for name, repo := range r.repositories {
		prefixed[repositoryPrefix+name] = repo
	}
	r.repositories = prefixed
	return r, nil
}

// imageBucket is an S3 bucket: it has no listing, and answers 403 for a missing key.
func (c Content) imageBucket(locations) (http.Handler, error) {
	return c.blobs("registry.k8s.io", "/containers/images/", http.StatusForbidden)
}

func (c Content) ghcr(at locations) (http.Handler, error) {
	return c.withTokens("ghcr.io", "ghcr.io", at["ghcr.io"], at[packageCDN]+"/ghcr1/blobs/")
}

// hub is Docker Hub. The real one issues tokens at another host, auth.docker.io.
func (c Content) hub(at locations) (http.Handler, error) {
	return c.withTokens("docker.io", "registry.docker.io", at["docker.io"], at[hubCDN]+hubBlobs)
}

// withTokens serves the manifests of a host to clients with a token, which every client can get
// at realm, and redirects requests for blobs to a signed URL.
func (c Content) withTokens(host, service, realm, blobs string) (http.Handler, error) {
	r, err := newRegistry(c.Manifests[host], c.Blob)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /token", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"token":%q}`, token(req.FormValue("scope")))
	})
	mux.HandleFunc("/v2/", func(w http.ResponseWriter, req *http.Request) {
		scope := "repository:user/image:pull" // ghcr.io's scope for requests without an image
		parts := apiPath.FindStringSubmatch(req.URL.Path)
		if parts != nil {
			scope = "repository:" + parts[1] + ":pull"
		}
		bearer, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
		if !ok || parts != nil && bearer != token(scope) {
			w.Header().Set("Www-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="%s",scope="%s"`, realm, service, scope))
			registryError(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
			return
		}
		if parts != nil && parts[2] == "blobs" {
			repo := r.repositories[parts[1]]
			if repo != nil && repo.blobs[parts[3]] {
				http.Redirect(w, req, blobs+parts[3]+"?"+signature(parts[3]), http.StatusTemporaryRedirect)
				return
			}
		}
		r.ServeHTTP(w, req)
	})
	return mux, nil
}

// token is opaque to clients. It depends only on the scope, so the server need not store it.
func token(scope string) string {
	sum := sha256.Sum256([]byte("airlift test rig " + scope))
	return hex.EncodeToString(sum[:])
}

// signature is the query of a signed URL, which the CDN requires.
func signature(path string) string {
	sum := sha256.Sum256([]byte("airlift test rig " + path))
	return url.Values{"se": {"2099-01-01T00:00:00Z"}, "sp": {"r"}, "sig": {hex.EncodeToString(sum[:])}}.Encode()
}

func signed(req *http.Request, path string) bool {
	return req.URL.Query().Encode() == signature(path)
}

func (c Content) packageCDN(locations) (http.Handler, error) {
	return c.signedBlobs("ghcr.io", "/ghcr1/blobs/")
}

// hubBlobs is the path of Docker Hub's blobs in its CDN.
const hubBlobs = "/registry-v2/blobs/"

func (c Content) hubCDN(locations) (http.Handler, error) { return c.signedBlobs("docker.io", hubBlobs) }

// signedBlobs serves the blobs of a registry to requests with a signed URL.
func (c Content) signedBlobs(host, prefix string) (http.Handler, error) {
	blobs, err := c.blobs(host, prefix, http.StatusNotFound)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !signed(req, path.Base(req.URL.Path)) {
			http.Error(w, "the URL is not signed", http.StatusForbidden)
			return
		}
		blobs.ServeHTTP(w, req)
	}), nil
}

// blobs serves the blobs of a registry like an object store. An object store rejects a request
// with a second kind of authentication, so a client that sends its registry token fails.
func (c Content) blobs(host, prefix string, missing int) (http.Handler, error) {
	r, err := newRegistry(c.Manifests[host], c.Blob)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "" {
			http.Error(w, "only one kind of authentication is allowed", http.StatusBadRequest)
			return
		}
		digest, ok := strings.CutPrefix(req.URL.Path, prefix)
		file, found := r.blobFile(digest)
		if !ok || !found {
			http.Error(w, http.StatusText(missing), missing)
			return
		}
		file.serve(w, req)
	}), nil
}

// dlK8sIO redirects every request to the CDN, which answers 404 for missing files.
func (c Content) dlK8sIO(at locations) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, at[kubernetesCDN]+req.URL.Path, http.StatusFound)
	}), nil
}

func (c Content) kubernetesCDN(locations) (http.Handler, error) {
	files := c.Files["dl.k8s.io"]
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		file, ok := files[req.URL.Path]
		if !ok {
			w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "<?xml version='1.0' encoding='UTF-8'?><Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>")
			return
		}
		file.serve(w, req)
	}), nil
}

// github redirects requests for release files to a signed URL and answers all others with
// "Not Found".
func (c Content) github(at locations) (http.Handler, error) {
	files := c.Files["github.com"]
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, ok := files[req.URL.Path]; !ok {
			http.Error(w, "Not Found", http.StatusNotFound)
			return
		}
		target := at[releaseCDN] + "/github-production-release-asset" + req.URL.Path + "?" + signature(req.URL.Path)
		http.Redirect(w, req, target, http.StatusFound)
	}), nil
}

func (c Content) releaseCDN(locations) (http.Handler, error) {
	files := c.Files["github.com"]
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := strings.TrimPrefix(req.URL.Path, "/github-production-release-asset")
		file, ok := files[name]
		switch {
		case !signed(req, name):
			http.Error(w, "the URL is not signed", http.StatusForbidden)
		case !ok:
			http.Error(w, "Not Found", http.StatusNotFound)
		default:
			file.serve(w, req)
		}
	}), nil
}
