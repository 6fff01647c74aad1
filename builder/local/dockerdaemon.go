package local

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"airlift/internal/documents/pemfile"
	"airlift/internal/fault"
)

const defaultDockerHost = "unix:///var/run/docker.sock"

// save reads an image of a local Docker: the archive that docker save writes. It uses
// Docker's HTTP API directly. The client library takes the image apart and makes another
// manifest, and it does not keep upstream's manifest, which a recent docker saves.
func (r *Reader) save(ctx context.Context, image string) (files, error) {
	host := cmp.Or(os.Getenv("DOCKER_HOST"), defaultDockerHost)
	client, base, err := dockerClient(host)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/images/get?names="+url.QueryEscape(image), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("connecting to docker: %w", err), fault.Failure, hintDocker(host, err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, dockerError(resp, image)
	}
	f, err := r.Cache.Temporary(ctx, resp.Body)
	if err != nil {
		return nil, err
	}
	return readArchive(ctx, r.Cache, "docker's "+image, f)
}

func hintDocker(host string, err error) string {
	if errors.Is(err, syscall.EACCES) {
		return "run as a user of the group docker, or set DOCKER_HOST"
	}
	return "start docker, or set DOCKER_HOST to its address; now it is " + host
}

func dockerError(resp *http.Response, image string) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var answer struct{ Message string }
	message := resp.Status
	if json.Unmarshal(b, &answer) == nil && answer.Message != "" {
		message = answer.Message
	}
	// Docker answers 500 for some images that do not exist.
	return fault.New(fault.Failure, "docker: %q", message).Hint("docker images lists the images; docker pull " + image + " pulls it")
}

// dockerClient returns a client for the value of DOCKER_HOST, and the URL of its API.
func dockerClient(host string) (*http.Client, string, error) {
	u, err := url.Parse(host)
	if err != nil {
		return nil, "", fault.Wrap(fmt.Errorf("reading DOCKER_HOST: %w", err), fault.Usage, "set it to unix:///var/run/docker.sock or tcp://HOST:2376")
	}
	t := &http.Transport{ResponseHeaderTimeout: 5 * time.Minute} // docker collects the layers first
	dial := net.Dialer{Timeout: 20 * time.Second}
	switch u.Scheme {
	case "unix":
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial.DialContext(ctx, "unix", u.Path)
		}
		return &http.Client{Transport: t}, "http://docker", nil
	case "tcp":
		t.DialContext, t.Proxy = dial.DialContext, http.ProxyFromEnvironment
		if os.Getenv("DOCKER_TLS_VERIFY") == "" {
			return &http.Client{Transport: t}, "http://" + u.Host, nil
		}
		t.TLSClientConfig, err = dockerTLS()
		return &http.Client{Transport: t}, "https://" + u.Host, err
	}
	return nil, "", fault.New(fault.Usage, "DOCKER_HOST %q begins with neither unix:// nor tcp://", host).
		Hint("run docker save -o app.tar IMAGE, and use --image docker-archive:app.tar")
}

func dockerTLS() (*tls.Config, error) {
	dir := os.Getenv("DOCKER_CERT_PATH")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(home, ".docker")
	}
	fail := func(file string, err error) (*tls.Config, error) {
		return nil, fault.Wrap(fmt.Errorf("reading docker's certificates: %w", err), fault.Usage, pemfile.HintOf(err, file, "set DOCKER_CERT_PATH to the directory with ca.pem, cert.pem and key.pem"))
	}
	content := map[string][]byte{}
	for name, kind := range map[string]pemfile.Kind{"ca.pem": pemfile.Certificate, "cert.pem": pemfile.Certificate, "key.pem": pemfile.PrivateKey} {
		file := filepath.Join(dir, name)
		text, err := os.ReadFile(file)
		if err != nil {
			return fail(file, err)
		}
		if err := pemfile.Check(text, kind); err != nil {
			return fail(file, fmt.Errorf("%s: %w", file, err))
		}
		content[name] = text
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(content["ca.pem"])
	pair, err := tls.X509KeyPair(content["cert.pem"], content["key.pem"])
	if err != nil {
		return fail(dir, err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}, nil
}
