package charts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"sigs.k8s.io/yaml"

	"airlift/builder/fetch"
	"airlift/builder/lock"
	"airlift/builder/registry"
	"airlift/internal/fault"
)

const (
	// maxIndex is the maximum size of a repository's index in bytes. Large indexes have 20 MB.
	maxIndex = 128 << 20
	// maxArchive is the maximum size of a chart's archive in bytes. Helm unpacks at most 100 MiB.
	maxArchive = 64 << 20
)

// A Client gets charts from repositories and registries, with the credentials and the rule for
// plain http of images.
type Client struct {
	// AuthFile has the credentials, also for repositories, in the format of docker's
	// config.json. If it is empty, they are in the files of docker and podman.
	AuthFile string
	// Offline makes a chart that has to be downloaded an error.
	Offline bool

	mirrors *fetch.Mirrors
	images  *registry.Client  // nil before its first use
	indexes map[string]*index // by URL
	charts  map[wanted]archive
	pins    map[lock.Chart]lock.Chart // by what is wanted
	// downloads lists the downloaded charts.
	downloads []lock.Chart
	// Started, if set, is called before a chart is downloaded. Version, URL and Digest are
	// not known yet. Finished gets all of them, and the size in bytes.
	Started  func(lock.Chart)
	Finished func(d lock.Chart, size int64)
}

// ErrOffline is the error of a chart that has to be downloaded.
var ErrOffline = errors.New("the chart has to be downloaded")

// An archive is a downloaded chart.
type archive struct {
	Content []byte
	URL     string
	Version string
}

// New returns a client that sends every request through mirrors. It is not safe for parallel
// use.
func New(mirrors *fetch.Mirrors) *Client {
	return &Client{mirrors: mirrors, indexes: map[string]*index{}, charts: map[wanted]archive{}}
}

// An index is the part of a repository's index.yaml that is needed.
type index struct {
	Entries map[string][]struct {
		Version string   `json:"version"`
		URLs    []string `json:"urls"`
		Digest  string   `json:"digest"`
	} `json:"entries"`
}

// A wanted chart is in a repository, or in a registry if Repository is empty. It is the error of one
// that was not downloaded.
type wanted struct{ Repository, Chart, Version string }

func (w wanted) Error() string { return "chart " + w.Chart + " is needed" }

// entry is the chart in a lock, before it is known what Wanted resolves to.
func (w wanted) entry() lock.Chart {
	if w.Repository == "" {
		return lock.Chart{Source: w.Chart, Wanted: w.Version}
	}
	return lock.Chart{Source: withoutUser(w.Repository), Name: w.Chart, Wanted: w.Version}
}

// archive returns a chart that was downloaded.
func (c *Client) archive(w wanted) (archive, error) {
	if a, ok := c.charts[w]; ok {
		return a, nil
	}
	return archive{}, w
}

// download gets the archive of a chart. A chart that is used twice is downloaded once.
func (c *Client) download(ctx context.Context, w wanted) (a archive, err error) {
	if a, err = c.archive(w); err == nil {
		return a, nil
	}
	if c.Offline {
		return a, ErrOffline
	}
	entry := w.entry()
	if c.Started != nil {
		c.Started(entry)
	}
	if pin, ok := c.pins[entry]; ok {
		a, err = c.pinned(ctx, w.Repository, pin)
	} else if w.Repository == "" {
		a, err = c.fromRegistry(ctx, w.Chart, w.Version)
	} else {
		a, err = c.fromRepository(ctx, w)
	}
	if err != nil {
		return archive{}, err
	}
	c.charts[w] = a
	entry.Version, entry.URL, entry.Digest = a.Version, withoutUser(a.URL), digestOf(a.Content)
	c.downloads = append(c.downloads, entry)
	if c.Finished != nil {
		c.Finished(entry, int64(len(a.Content)))
	}
	return a, nil
}

func (c *Client) fromRepository(ctx context.Context, w wanted) (a archive, err error) {
	repository, chart, version := w.Repository, w.Chart, w.Version
	base, err := url.Parse(strings.TrimSuffix(repository, "/") + "/")
	if err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" {
		return a, fault.New(fault.Usage, "repository %q is not an http or https URL", repository).
			Hint("write the URL of the directory that contains index.yaml: https://charts.example.com")
	}
	idx, err := c.index(ctx, base)
	if err != nil {
		return a, err
	}
	entries, ok := idx.Entries[chart]
	if !ok {
		names := slices.Sorted(maps.Keys(idx.Entries))
		hint := "the repository has " + strings.Join(names, ", ")
		if near := fault.Nearest(chart, names); near != "" {
			hint = "did you mean " + near + "?"
		} else if len(names) > 20 {
			hint = fmt.Sprintf("the repository has %d charts, for example %s", len(names), strings.Join(names[:20], ", "))
		}
		return a, fault.New(fault.Usage, "repository %s has no chart %q", fetch.Shown(base), chart).Hint(hint)
	}
	var versions []string
	for _, e := range entries {
		versions = append(versions, e.Version)
	}
	chosen, err := choose(versions, version)
	if err != nil {
		return a, fmt.Errorf("chart %q of %s: %w", chart, fetch.Shown(base), err)
	}
	e := entries[slices.Index(versions, chosen)]
	if len(e.URLs) == 0 {
		return a, fmt.Errorf("chart %q %s of %s has no URL in index.yaml", chart, chosen, fetch.Shown(base))
	}
	if strings.HasPrefix(e.URLs[0], ociScheme) {
		ref, tag := e.URLs[0], ""
		if i := strings.LastIndex(ref, ":"); i > strings.LastIndex(ref, "/") {
			ref, tag = ref[:i], ref[i+1:]
		}
		return c.fromRegistry(ctx, ref, strings.ReplaceAll(tag, "_", "+"))
	}
	at, err := base.Parse(e.URLs[0])
	if err != nil {
		return a, fmt.Errorf("chart %q %s of %s: %w", chart, chosen, fetch.Shown(base), err)
	}
	a.Content, err = c.get(ctx, at, base, maxArchive)
	if err != nil {
		return a, fmt.Errorf("downloading chart %q %s: %w", chart, chosen, err)
	}
	if got := digestOf(a.Content); e.Digest != "" && strings.TrimPrefix(e.Digest, "sha256:") != strings.TrimPrefix(got, "sha256:") {
		return a, fault.New(fault.Failure, "chart %q %s from %s has digest %s, but index.yaml lists %s", chart, chosen, fetch.Shown(at), got, e.Digest).
			Hint("try again; if it fails again, ask the operator of the repository")
	}
	a.URL, a.Version = withoutUser(at.String()), chosen
	return a, nil
}

func (c *Client) index(ctx context.Context, base *url.URL) (*index, error) {
	at := base.JoinPath("index.yaml")
	if idx, ok := c.indexes[at.String()]; ok {
		return idx, nil
	}
	content, err := c.get(ctx, at, base, maxIndex)
	if err != nil {
		hint := cmp.Or(fault.Hint(err), "check the URL: it is the directory that contains index.yaml")
		return nil, fault.Wrap(fmt.Errorf("reading the chart repository: %w", err), fault.Failure, hint)
	}
	var idx index
	if err := yaml.Unmarshal(content, &idx); err != nil {
		return nil, fault.New(fault.Failure, "reading %s: %w", fetch.Shown(at), err).Hint("check the URL: it is the directory that contains index.yaml")
	}
	c.indexes[at.String()] = &idx
	return &idx, nil
}

// get downloads a file. Only a file of the repository's own host gets the credentials.
func (c *Client) get(ctx context.Context, at, repository *url.URL, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(fetch.Allow(ctx, limit), http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	var base http.RoundTripper = transport.NewRetry(c.mirrors, transport.WithRetryStatusCodes(
		http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout))
	if repository.Scheme == "https" && fetch.SameOrigin(at, repository) {
		account, err := c.registry().Authorization(ctx, repository.Host, strings.Trim(repository.Path, "/"))
		if err != nil {
			return nil, err
		}
		base = &authorized{base, repository, account}
	}
	client := &http.Client{Transport: base}
	resp, err := client.Do(req)
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		failed.URL = fetch.Shown(at)
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &fetch.StatusError{URL: fetch.Shown(at), Status: resp.Status}
	}
	content, err := io.ReadAll(resp.Body)
	if err == nil {
		err = fetch.NotAPage(fetch.Shown(at), content)
	}
	return content, err
}

// An authorized transport sends credentials to the repository's own scheme, host and port. In a
// header of the request, net/http would also send them to where the repository redirects.
type authorized struct {
	base       http.RoundTripper
	repository *url.URL
	account    *authn.AuthConfig
}

func (a *authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	// net/http sends the user of a URL.
	if req.URL.User != nil || !fetch.SameOrigin(req.URL, a.repository) {
		return a.base.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	if token := a.account.RegistryToken; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	} else if a.account.Username != "" || a.account.Password != "" {
		req.SetBasicAuth(a.account.Username, a.account.Password)
	}
	return a.base.RoundTrip(req)
}

func (c *Client) registry() *registry.Client {
	if c.images == nil {
		c.images = registry.New(fetch.New(nil, c.mirrors), c.mirrors, "") // it stores nothing
		c.images.AuthFile = c.AuthFile
	}
	return c.images
}

// Media types of a chart's archive in a registry.
var chartLayers = []string{"application/vnd.cncf.helm.chart.content.v1.tar+gzip", "application/tar+gzip"}

func (c *Client) fromRegistry(ctx context.Context, from, version string) (a archive, err error) {
	repo, err := name.NewRepository(strings.TrimPrefix(from, ociScheme), name.StrictValidation)
	if err != nil {
		return a, fault.New(fault.Usage, "chart %q: %w", from, err).Hint("write it as oci://registry.example.com/charts/app and give the version separately")
	}
	tag := strings.ReplaceAll(version, "+", "_")
	if _, err := semver.StrictNewVersion(version); err != nil {
		tags, err := c.registry().Tags(ctx, repo)
		if err != nil {
			return a, fmt.Errorf("listing the versions of %s: %w", from, err)
		}
		for i := range tags {
			tags[i] = strings.ReplaceAll(tags[i], "_", "+")
		}
		chosen, err := choose(tags, version)
		if err != nil {
			return a, fmt.Errorf("chart %q: %w", from, err)
		}
		tag = strings.ReplaceAll(chosen, "+", "_")
	}
	ref := repo.Tag(tag)
	manifest, err := c.registry().Artifact(ctx, ref)
	if err != nil {
		return a, notThere(fmt.Errorf("pulling chart %s%s: %w", ociScheme, ref, err), "check the name and the version of the chart")
	}
	layer, err := chartLayer(manifest)
	if err != nil {
		return a, fault.New(fault.Usage, "%s%s %w", ociScheme, ref, err).Hint("give the name of a chart")
	}
	if a.Content, err = c.registry().Blob(ctx, repo, layer.Digest.String(), layer.Size); err != nil {
		return a, fmt.Errorf("pulling chart %s%s: %w", ociScheme, ref, err)
	}
	a.URL, a.Version = ociScheme+ref.String(), strings.ReplaceAll(tag, "_", "+")
	return a, nil
}

// notThere adds a hint to err if a registry answered that it does not have the content. Other
// errors, such as an unknown CA, have a hint of the registry's client, or get a hint of the
// builder.
func notThere(err error, hint string) error {
	if fetch.NotThere(err) {
		return fault.Wrap(err, fault.Failure, hint)
	}
	return err
}

func chartLayer(m *v1.Manifest) (v1.Descriptor, error) {
	for _, l := range m.Layers {
		if slices.Contains(chartLayers, string(l.MediaType)) {
			if l.Size <= 0 || l.Size > maxArchive {
				return l, fmt.Errorf("has an archive of %d bytes, not between 1 and %d", l.Size, maxArchive)
			}
			return l, nil
		}
	}
	return v1.Descriptor{}, errors.New("is not a Helm chart")
}

// choose returns the newest version in the range, or the newest release for an empty one.
func choose(versions []string, wanted string) (string, error) {
	if slices.Contains(versions, wanted) {
		return wanted, nil
	}
	constraint := wanted
	if constraint == "" {
		constraint = "*" // without pre-releases, as Helm
	}
	within, err := semver.NewConstraint(constraint)
	if err != nil {
		return "", fault.New(fault.Usage, "version %q: %w", wanted, err).Hint(`write a version such as 1.2.3 or a range such as "~1.2"`)
	}
	var best *semver.Version
	var newest []*semver.Version
	for _, v := range versions {
		parsed, err := semver.NewVersion(v)
		if err != nil {
			continue
		}
		newest = append(newest, parsed)
		if within.Check(parsed) && (best == nil || parsed.GreaterThan(best)) {
			best = parsed
		}
	}
	if best == nil {
		slices.SortFunc(newest, func(a, b *semver.Version) int { return b.Compare(a) })
		hint := "the list of versions is empty: check the name of the chart"
		if len(newest) > 0 {
			newest = newest[:min(len(newest), 5)]
			var list []string
			for _, v := range newest {
				list = append(list, v.Original())
			}
			hint = "the newest versions are " + strings.Join(list, ", ")
		}
		return "", fault.New(fault.Usage, "there is no version %q", wanted).Hint(hint)
	}
	return best.Original(), nil
}
