package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/bundle/remote"
	"airlift/installer/cluster"
	"airlift/installer/config"
)

// A remoteFile reads a bundle of other control planes. What surrounds the payload is in memory, and was compared with the
// bundle's ID. A reader of the payload compares the pieces.
type remoteFile struct {
	*remote.Reader
	sections []section
}

// A section of a file in memory.
type section struct {
	at   int64
	data []byte
}

// ReadAt reads from a section, if it has all bytes.
func (r *remoteFile) ReadAt(b []byte, at int64) (int, error) {
	for _, s := range r.sections {
		if at >= s.at && at+int64(len(b)) <= s.at+int64(len(s.data)) {
			return copy(b, s.data[at-s.at:]), nil
		}
	}
	return r.Reader.ReadAt(b, at)
}

// openRemote opens a bundle that other control planes have. It fails if none of them has it. close ends the connections.
func openRemote(ctx context.Context, api api, servers []netip.AddrPort, b config.KeptBundle, log *slog.Logger) (f *bundle.File, close func(), err error) {
	trust, token, err := api.Credentials()
	if err != nil {
		return nil, nil, err
	}
	names := make([]string, len(servers))
	for i, n := range rand.Perm(len(servers)) { // other control planes may copy too
		names[i] = servers[n].String()
	}
	r, err := remote.Open(ctx, remote.Options{
		ID: b.ID, Size: b.Size, Servers: func() []string { return names }, TLS: trust, Token: token,
		Wrap:   func(t http.RoundTripper) http.RoundTripper { return cluster.Logged{RoundTripper: t} },
		Report: func(line string) { log.Info("copying a bundle", "from", line) },
	})
	if err != nil {
		return nil, nil, err
	}
	file := &remoteFile{Reader: r}
	if err = file.load(ctx, b); err == nil {
		f, err = bundle.OpenAt(file, b.Size, "the bundle of other control planes")
	}
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	return f, func() { r.Close() }, nil
}

// load reads what surrounds the payload. A control plane that sends something else is passed over.
func (r *remoteFile) load(ctx context.Context, b config.KeptBundle) error {
	if err := r.Probe(ctx); err != nil {
		return err
	}
	if b.Size < head.TrailerSize {
		return fmt.Errorf("a bundle of %d bytes is too small", b.Size)
	}
	tail, err := r.section(ctx, b.Size-head.TrailerSize, head.TrailerSize, func(data []byte) bool {
		sum := sha256.Sum256(data)
		return hex.EncodeToString(sum[:]) == b.ID
	})
	if err != nil {
		return err
	}
	t, err := head.DecodeTrailer(tail)
	if err != nil {
		return err
	}
	if t.FileSize() != uint64(b.Size) {
		return fmt.Errorf("the bundle %s has %d bytes, and the cluster lists %d", b.ID, t.FileSize(), b.Size)
	}
	launcher := int64(t.PayloadOffset) - head.HeaderSize
	if _, err := r.section(ctx, t.DigestsOffset(), b.Size-head.TrailerSize-t.DigestsOffset(), t.HasDigests); err != nil {
		return err
	}
	if _, err := r.section(ctx, 0, launcher, func(data []byte) bool { return sha256.Sum256(data) == t.LauncherSHA256 }); err != nil {
		return err
	}
	r.sections = append(r.sections, section{launcher, head.Header{FileSize: t.FileSize()}.Encode()})
	return nil
}

// section reads a section that matches.
func (r *remoteFile) section(ctx context.Context, at, size int64, matches func([]byte) bool) ([]byte, error) {
	data := make([]byte, size)
	if err := r.ReadVerified(ctx, data, at, matches); err != nil {
		return nil, err
	}
	r.sections = append(r.sections, section{at, data})
	return data, nil
}
