package fetch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"airlift/internal/interrupt"
	"airlift/internal/space"
)

// A Download describes a file to download.
type Download struct {
	Name   string // for messages
	URL    string
	SHA256 string // lower-case hex
	// Vouched names the source of SHA256 in messages: "published at https://…".
	Vouched string
	// Size is the expected size in bytes; 0 if it is not known.
	Size int64
	// HTTP replaces the client's own HTTP client, for sites that need credentials.
	HTTP *http.Client
	// Meter, if set, receives the total size and the downloaded bytes.
	Meter Meter
}

// A Meter counts the bytes of a download. Add counts the progress, with the bytes that an
// interrupted download left: it gets a negative number when counted bytes have to be downloaded
// again. Received counts what the site sends.
type Meter interface {
	SetTotal(bytes int64)
	Add(bytes int64)
	Received(bytes int64)
}

type noMeter struct{}

func (noMeter) SetTotal(int64) {}
func (noMeter) Add(int64)      {}
func (noMeter) Received(int64) {}

// Get downloads a file to the cache, unless it is there, and returns its size. It
// continues an interrupted download, also of another process.
func (c *Client) Get(ctx context.Context, d Download) (int64, error) {
	if size, ok, err := c.Cache.Has(ctx, d.SHA256); ok || err != nil {
		return size, err
	}
	var size int64
	already := func() (ok bool, err error) {
		size, ok, err = c.Cache.Has(ctx, d.SHA256)
		return ok, err
	}
	err := c.download(ctx, d, already, func(f *os.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		size = info.Size()
		return c.Cache.keep(f, d.SHA256, size)
	})
	return size, err
}

// Verified is a downloaded file with the expected sha256.
type Verified struct {
	io.Reader
	io.ReaderAt
	Size int64
}

// Unpack downloads an archive, unless already returns true because its contents are in
// the cache. use reads the verified file, which is removed afterwards.
func (c *Client) Unpack(ctx context.Context, d Download, already func() (bool, error), use func(Verified) error) error {
	if ok, err := already(); ok || err != nil {
		return err
	}
	return c.download(ctx, d, already, func(f *os.File) error {
		size, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := use(Verified{interrupt.Reader(ctx, f), f, size}); err != nil {
			return err
		}
		return os.Remove(f.Name())
	})
}

// download completes and verifies the partial file and calls done with the still locked
// file. Another process may have finished the download while this one waited for the
// lock, so it calls already again.
func (c *Client) download(ctx context.Context, d Download, already func() (bool, error), done func(*os.File) error) error {
	if d.HTTP == nil {
		d.HTTP = c.HTTP
	}
	if d.Meter == nil {
		d.Meter = noMeter{}
	}
	u, err := url.Parse(d.URL)
	if err != nil {
		return err
	}
	f, err := c.Cache.partial(ctx, d.SHA256, c.mirrors.Site(u), func() {
		c.note("waiting: another process is downloading %s to %s", d.Name, c.Cache.dir)
	})
	if err != nil {
		return err
	}
	defer f.Close()
	if ok, err := already(); err != nil {
		return err
	} else if ok {
		os.Remove(f.Name())
		return nil
	}
	resumed, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if resumed > 0 {
		d.Meter.Add(resumed)
	}
	for {
		// A site that restarts the file and always breaks off at the same place makes
		// no progress.
		farthest := resumed
		err := c.retry(ctx, func() (bool, error) {
			err := c.resume(ctx, f, d)
			have, _ := f.Seek(0, io.SeekCurrent)
			advanced := have >= farthest+minimumAdvance
			if advanced {
				farthest = have
			}
			return advanced, err
		})
		if size := (*SizeError)(nil); errors.As(err, &size) {
			os.Remove(f.Name()) // the site has another file, so the partial one is useless
		}
		if err != nil {
			return fmt.Errorf("downloading %s: %w", d.Name, space.Explain(c.Cache.dir, err))
		}
		sum, err := sumOf(ctx, f)
		if err != nil {
			return err
		}
		if sum == d.SHA256 {
			return done(f)
		}
		if resumed == 0 {
			os.Remove(f.Name())
			return &MismatchError{Name: d.Name, URL: d.URL, Want: d.SHA256, Got: sum, Vouched: d.Vouched}
		}
		// The damage may be in the part from an earlier run.
		resumed = 0
		if err := restart(f, d.Meter); err != nil {
			return err
		}
	}
}

func sumOf(ctx context.Context, f *os.File) (string, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	h := sha256.New()
	_, err := io.Copy(h, interrupt.Reader(ctx, f))
	return hexSum(h), err
}

// restart truncates f, so that it is downloaded from the start.
func restart(f *os.File, m Meter) error {
	have, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		m.Add(-have)
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return Final(err)
	}
	return nil
}

func (c *Client) resume(ctx context.Context, f *os.File, d Download) error {
	have, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Final(err)
	}
	if have > d.most() {
		if err := restart(f, d.Meter); err != nil {
			return err
		}
		have = 0
	}
	req, err := http.NewRequestWithContext(Allow(ctx, d.most()), http.MethodGet, d.URL, nil)
	if err != nil {
		return err
	}
	// The checksum is of the published file, so no proxy may compress the response.
	req.Header.Set("Accept-Encoding", "identity")
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	resp, err := d.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	content, err := filePage(d.URL, resp)
	if err != nil && resp.StatusCode == http.StatusOK {
		return err
	}
	total := int64(-1) // size of the file, if the site announces it
	var from, last int64
	switch resp.StatusCode {
	case http.StatusPartialContent:
		if n, _ := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &last, &total); n != 3 || from != have {
			return cmp.Or(restart(f, d.Meter), fmt.Errorf("%s returned range %q", d.URL, resp.Header.Get("Content-Range")))
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if n, _ := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes */%d", &total); n == 1 && total == have {
			d.Meter.SetTotal(total)
			return nil // the file is complete
		}
		return cmp.Or(restart(f, d.Meter), io.ErrUnexpectedEOF)
	default:
		if err := check(d.URL, resp); err != nil {
			return err
		}
		if have > 0 { // the site does not support ranges
			if err := restart(f, d.Meter); err != nil {
				return err
			}
			have = 0
		}
		total = resp.ContentLength
	}
	if err := d.checkSize(total); err != nil {
		return err
	}
	if total >= 0 {
		d.Meter.SetTotal(total)
		if err := space.Check(c.Cache.dir, "the download of "+d.Name, total-have); err != nil {
			return Final(err)
		}
	}
	return appendTo(f, content, d, have, total)
}

func (d Download) most() int64 {
	if d.Size > 0 {
		return d.Size
	}
	return maxFile
}

func (d Download) checkSize(total int64) error {
	switch {
	case total < 0:
		return nil
	case d.Size > 0 && total != d.Size:
		return &SizeError{d.URL, fmt.Sprintf("has %d bytes, expected %d", total, d.Size)}
	case total > d.most():
		return &SizeError{d.URL, fmt.Sprintf("has %d bytes, more than the limit of %d", total, d.most())}
	}
	return nil
}

// appendTo appends content to f, which has the first bytes of total already.
func appendTo(f *os.File, content io.Reader, d Download, have, total int64) error {
	if total < 0 {
		total = d.Size // still 0 if it is unknown
	}
	buf := make([]byte, 128<<10)
	for {
		n, err := content.Read(buf)
		have += int64(n)
		if have > d.most() {
			return &SizeError{d.URL, fmt.Sprintf("sends more than the limit of %d bytes", d.most())}
		}
		if n > 0 {
			if _, err := f.Write(buf[:n]); err != nil {
				return Final(err)
			}
			d.Meter.Add(int64(n))
			d.Meter.Received(int64(n))
		}
		switch {
		case err == io.EOF && total > 0 && have < total:
			return io.ErrUnexpectedEOF
		case err == io.EOF && total > 0 && have > total:
			return &SizeError{d.URL, fmt.Sprintf("sent %d bytes, but announced %d", have, total)}
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}
