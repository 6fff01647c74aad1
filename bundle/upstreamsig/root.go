package upstreamsig

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sigstore/sigstore-go/pkg/tuf"
	"github.com/theupdateframework/go-tuf/v2/metadata"

	"airlift/bundle/fetch"
)

// RootURL is the repository (TUF) with sigstore's public trusted root.
const RootURL = tuf.DefaultMirror

// FetchRoot returns sigstore's trusted root. It is kept in dir, and requested again after a
// day. If that fails, the one in dir is used until its signatures expire, which is a week for
// the shortest of them.
//
// anchor is the first root metadata that is trusted; nil means the one in sigstore's library.
// It may be old: each later one is signed by its predecessor, and only the last one must not
// have expired.
func FetchRoot(ctx context.Context, f *fetch.Client, dir string, anchor []byte) ([]byte, error) {
	if anchor == nil {
		anchor = tuf.DefaultRoot()
	}
	var failed error
	options := tuf.Options{Root: anchor, CachePath: dir, RepositoryBaseURL: RootURL, CacheValidity: 1,
		Context: ctx, Fetcher: fetcher{ctx, f, &failed}}
	client, err := tuf.New(&options)
	if err != nil {
		fresh := err
		options.ForceCache = true
		options.Fetcher = offline{}
		if client, err = tuf.New(&options); err != nil {
			return nil, errors.Join(ctx.Err(), cmpErr(failed, fresh))
		}
	}
	return client.GetTarget("trusted_root.json")
}

// cmpErr prefers the error of the request to the library's text about it.
func cmpErr(request, library error) error {
	if request != nil {
		return request
	}
	return library
}

// A fetcher sends TUF's requests through the mirrors, CAs and limits of a build.
type fetcher struct {
	ctx    context.Context
	client *fetch.Client
	failed *error
}

func (f fetcher) DownloadFile(url string, most int64, _ time.Duration) ([]byte, error) {
	b, _, err := f.client.Ask(f.ctx, fetch.Question{URL: url, Max: most})
	if fetch.NotThere(err) {
		return nil, &metadata.ErrDownloadHTTP{StatusCode: http.StatusNotFound, URL: url}
	}
	if err != nil {
		*f.failed = err
	}
	return b, err
}

// offline requests nothing.
type offline struct{}

func (offline) DownloadFile(url string, _ int64, _ time.Duration) ([]byte, error) {
	return nil, errors.New("not requested: " + url)
}
