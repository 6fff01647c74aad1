package upstreamsig

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/sigstore/sigstore-go/pkg/tuf"
	"github.com/theupdateframework/go-tuf/v2/metadata"

	"airlift/builder/fetch"
)

// RootURL is the repository (TUF) with sigstore's public trusted root.
const RootURL = tuf.DefaultMirror

// FetchRoot returns sigstore's trusted root. It is kept in dir, and requested again after a
// day. If that fails, the one in dir is used until its signatures expire, which is a week for
// the shortest of them.
//
// anchor is the first root metadata that is trusted; nil means the one in sigstore's library.
// It may be old: each later one is signed by its predecessor, and only the last one must not
// have expired. The last one is also in dir, and the next call starts with it.
func FetchRoot(ctx context.Context, f *fetch.Client, dir string, anchor []byte) ([]byte, error) {
	if anchor == nil {
		anchor = tuf.DefaultRoot()
	}
	failed := false // a request
	if last, err := os.ReadFile(filepath.Join(dir, tuf.URLToPath(RootURL), "root.json")); err == nil {
		root, err := fetchFrom(ctx, f, dir, last, &failed)
		if err == nil || failed {
			return root, err
		}
	}
	return fetchFrom(ctx, f, dir, anchor, &failed)
}

// fetchFrom returns the trusted root of a repository with this root metadata. failed is set if
// a request failed.
func fetchFrom(ctx context.Context, f *fetch.Client, dir string, anchor []byte, failed *bool) ([]byte, error) {
	requests := &fetcher{ctx: ctx, client: f}
	options := tuf.Options{Root: anchor, CachePath: dir, RepositoryBaseURL: RootURL, CacheValidity: 1, Context: ctx, Fetcher: requests}
	client, err := tuf.New(&options)
	if err != nil {
		*failed = requests.failed != nil
		options.ForceCache, options.Fetcher = true, offline{}
		cached, stale := tuf.New(&options)
		if stale != nil {
			return nil, cmp.Or(ctx.Err(), requests.failed, err)
		}
		client = cached
	}
	return client.GetTarget("trusted_root.json")
}

// A fetcher sends TUF's requests through the mirrors, CAs and limits of a build.
type fetcher struct {
	ctx    context.Context
	client *fetch.Client
	failed error // of the last request that failed
}

func (f *fetcher) DownloadFile(url string, most int64, _ time.Duration) ([]byte, error) {
	b, _, err := f.client.Ask(f.ctx, fetch.Question{URL: url, Max: most})
	if fetch.NotThere(err) {
		return nil, &metadata.ErrDownloadHTTP{StatusCode: http.StatusNotFound, URL: url}
	}
	if err != nil {
		f.failed = err
	}
	return b, err
}

// offline requests nothing.
type offline struct{}

func (offline) DownloadFile(url string, _ int64, _ time.Duration) ([]byte, error) {
	return nil, errors.New("not requested: " + url)
}
