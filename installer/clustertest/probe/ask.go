package probe

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"airlift/installer/clustertest/diagnosis"
)

// ask makes one request of a check.
func (r *run) ask(ctx context.Context, api *api, c Check) error {
	switch c.How {
	case "dns-udp", "dns-tcp":
		return r.dns(ctx, strings.TrimPrefix(c.How, "dns-"), c.Address)
	case "echo-udp":
		_, err := r.datagram(ctx, c.Address, minPacket)
		return err
	case "echo-tcp":
		return r.connection(ctx, c.Address, 0, connectTime)
	case "closed":
		return r.closed(ctx, c.Address)
	case "connect":
		conn, err := dial(ctx, "tcp", c.Address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	case "write":
		return write(filepath.Join(c.Address, "airlift-test"))
	case "api":
		return api.ready(ctx, c.Address, c.Name)
	}
	return fmt.Errorf("unknown check %q: the command airlift of this node is of another version", c.How)
}

// write writes a file on a volume and reads it again.
func write(name string) error {
	text := "a test of the cluster wrote this\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return err
	}
	if data, err := os.ReadFile(name); err != nil || string(data) != text {
		return fmt.Errorf("the file has other contents than were written: %w", cmp.Or(err, io.ErrUnexpectedEOF))
	}
	return nil
}

var errNoAnswer = errors.New("no answer")

// datagram sends datagrams of a size until one is answered, and returns how far the clock of the server is ahead.
func (r *run) datagram(ctx context.Context, target string, size int) (ahead time.Duration, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", target)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	dontFragment(conn.(*net.UDPConn))
	request := make([]byte, max(size, minPacket))
	copy(request, r.Nonce+" "+r.Node+"\n")
	answer := make([]byte, 1<<16)
	last := errNoAnswer
	for range tries {
		if ctx.Err() != nil {
			break
		}
		sent := time.Now()
		if _, err := conn.Write(request); err != nil {
			last = err
		}
		_ = conn.SetReadDeadline(sent.Add(tryTime))
		for {
			n, err := conn.Read(answer)
			if err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					last = err
					pause(ctx, time.Until(sent.Add(tryTime)))
				}
				break
			}
			if n < len(request) {
				continue
			}
			if there, err := r.parse(string(answer[:n])); err == nil {
				middle := sent.Add(time.Since(sent) / 2)
				return there.Sub(middle), nil
			}
		}
	}
	return 0, plain(last)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// parse reads the time of a server's answer.
func (r *run) parse(answer string) (time.Time, error) {
	line, _, _ := strings.Cut(answer, "\n")
	fields := strings.Fields(line)
	if len(fields) != 3 || fields[0] != r.Nonce {
		return time.Time{}, errors.New("another server answers")
	}
	nanoseconds, err := strconv.ParseInt(fields[2], 10, 64)
	return time.Unix(0, nanoseconds), err
}

// connection connects to a server, and reads bytes.
func (r *run) connection(ctx context.Context, target string, bytes int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := dial(ctx, "tcp", target)
	if err != nil {
		return err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	if _, err := fmt.Fprintf(conn, "%s %d\n", r.Nonce, bytes); err != nil {
		return plain(err)
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return plain(err)
	}
	if _, err := r.parse(line); err != nil {
		return err
	}
	if n, err := io.Copy(io.Discard, in); err != nil || n != int64(bytes) {
		return fmt.Errorf("a transfer stopped after %d of %d bytes: %w", n, bytes, plain(cmp.Or(err, io.EOF)))
	}
	return nil
}

// closed fails if a port answers that a NetworkPolicy closes.
func (r *run) closed(ctx context.Context, target string) error {
	const settle = 8 // attempts, a second apart: a controller needs time to see new pods
	for attempt := 0; ; attempt++ {
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		conn, err := dial(limited, "tcp", target)
		cancel()
		if err != nil && ctx.Err() == nil {
			return nil
		}
		if err == nil {
			_ = conn.Close()
		}
		if attempt == settle || ctx.Err() != nil {
			return errors.New("a pod reaches a port that the NetworkPolicy of the test closes")
		}
		pause(ctx, time.Second)
	}
}

// dns asks a server for the name of the plan.
func (r *run) dns(ctx context.Context, network, server string) error {
	name, err := dnsmessage.NewName(r.Name)
	if err != nil {
		return err
	}
	kind := dnsmessage.TypeA
	if r.NameIPv6 {
		kind = dnsmessage.TypeAAAA
	}
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: kind, Class: dnsmessage.ClassINET}},
	}
	packed, err := query.Pack()
	if err != nil {
		return err
	}
	conn, err := dial(ctx, network, server)
	if err != nil {
		return err
	}
	defer conn.Close()
	end := time.Now().Add(connectTime)
	_ = conn.SetDeadline(end)
	if network == "tcp" {
		packed = append([]byte{byte(len(packed) >> 8), byte(len(packed))}, packed...)
	}
	var message []byte
	for range tries {
		if _, err = conn.Write(packed); err != nil {
			break
		}
		if network == "udp" {
			_ = conn.SetReadDeadline(time.Now().Add(tryTime))
		}
		if message, err = readDNS(conn, network); err == nil || network == "tcp" || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return plain(err)
	}
	var answer dnsmessage.Message
	if err := answer.Unpack(message); err != nil {
		return err
	}
	switch {
	case answer.ID != query.ID:
		return errors.New("the answer is for another question")
	case answer.RCode != dnsmessage.RCodeSuccess:
		return fmt.Errorf("%s: the DNS server answered %s", r.Name, strings.TrimPrefix(answer.RCode.String(), "RCode"))
	case len(answer.Answers) == 0:
		return fmt.Errorf("%s: the DNS server answered without an address", r.Name)
	}
	return nil
}

func readDNS(conn net.Conn, network string) ([]byte, error) {
	if network == "udp" {
		buffer := make([]byte, 1<<16)
		n, err := conn.Read(buffer)
		return buffer[:n], err
	}
	size := make([]byte, 2)
	if _, err := io.ReadFull(conn, size); err != nil {
		return nil, err
	}
	message := make([]byte, int(size[0])<<8|int(size[1]))
	_, err := io.ReadFull(conn, message)
	return message, err
}

// resolve resolves the name as a process of a pod does, through /etc/resolv.conf and its search list.
func (r *run) resolve(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*connectTime)
	defer cancel()
	name := strings.Join(strings.SplitN(r.Name, ".", 3)[:2], ".") // kubernetes.default
	_, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, name)
	if err != nil {
		err = plain(err)
	}
	r.saw(diagnosis.Resolver, "", name, err)
}

// An api connects to API servers.
type api struct{ cas *x509.CertPool }

func newAPI(ca string) (*api, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(ca)) {
		return nil, errors.New("the plan has no CA")
	}
	return &api{pool}, nil
}

// Ready asks an API server over a new connection whether it is ready. Any answer but a failure of the server counts: the cluster may
// refuse anonymous requests.
func Ready(ctx context.Context, ca, address, name string) error {
	a, err := newAPI(ca)
	if err != nil {
		return err
	}
	return a.ready(ctx, address, name)
}

func (a *api) ready(ctx context.Context, address, name string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if name == "" {
		name = host
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       dial,
		TLSClientConfig:   &tls.Config{RootCAs: a.cas, ServerName: name, MinVersion: tls.VersionTLS12},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return plain(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}

// dial connects within connectTime.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: connectTime}).DialContext(ctx, network, address)
	return conn, plain(err)
}

// plain returns an error without the addresses and operations that Go adds: the observation has them.
func plain(err error) error {
	if err == nil {
		return nil
	}
	var number syscall.Errno
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &number):
		return number
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errNoAnswer):
		return errNoAnswer
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection was closed")
	}
	return err
}

// inRanges reports whether an address belongs to one of these ranges.
func inRanges(a netip.Addr, ranges []string) bool {
	return slices.ContainsFunc(ranges, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(a)
	})
}
