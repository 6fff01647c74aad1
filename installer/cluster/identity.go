package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

const (
	// credentialsInterval is how often a watch reads its kubeconfig again: kubelets renew their
	// certificate long before it expires.
	credentialsInterval = 10 * time.Second
	// watchTime is the shortest time of a watch; as in client-go, the longest is twice that.
	watchTime = 5 * time.Minute
	// minPause and maxPause limit the time between a watch that ended and the next one.
	minPause = time.Second
	maxPause = 15 * time.Second
)

// An Identity is the user of a kubeconfig, for a process that runs for years: the kubeconfig and the files that it
// names are read again when they change. Several goroutines may use it.
type Identity struct {
	kubeconfig string // a path

	mu          sync.Mutex
	credentials []byte // the kubeconfig that client uses, without references to files
	client      *Client
}

// NewIdentity returns the identity of the kubeconfig at a path, which is read when it is needed.
func NewIdentity(kubeconfig string) *Identity { return &Identity{kubeconfig: kubeconfig} }

// load returns the client, which it creates again if the credentials changed, and the credentials.
func (i *Identity) load() (*Client, []byte, error) {
	credentials, err := ReadCredentials(i.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if bytes.Equal(credentials, i.credentials) {
		return i.client, credentials, nil
	}
	client, err := New(credentials, "")
	if err != nil {
		return nil, nil, err
	}
	if i.client != nil {
		i.client.http.CloseIdleConnections()
	}
	client.http.Timeout = 0 // it would end each watch; HTTP/2 pings find a dead connection
	i.credentials, i.client = credentials, client
	return client, credentials, nil
}

// ReadCredentials returns a kubeconfig with the contents of the files that it names.
func ReadCredentials(path string) ([]byte, error) {
	kubeconfig, err := clientcmd.LoadFromFile(path)
	if err == nil {
		err = clientcmdapi.FlattenConfig(kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	return clientcmd.Write(*kubeconfig)
}

// Credentials returns what a connection to another server of the cluster needs: the trusted CA and the client certificate,
// and the bearer token, or "".
func (i *Identity) Credentials() (*tls.Config, string, error) {
	kubeconfig, err := ReadCredentials(i.kubeconfig)
	if err != nil {
		return nil, "", err
	}
	return Credentials(kubeconfig)
}

// A followed is what follow reads and watches.
type followed struct {
	what string // for errors
	// list reads the present state, and returns where a watch begins.
	list  func(context.Context, *Client) (version string, err error)
	watch func(context.Context, *Client, metav1.ListOptions) (watch.Interface, error)
	// take uses an event of the watch, which is not an error.
	take func(watch.Event)
}

// follow lists and watches until ctx ends. It retries what fails, after it has passed failed the error.
func (i *Identity) follow(ctx context.Context, f followed, failed func(error)) {
	pause := minPause
	for ctx.Err() == nil {
		listed, err := i.followOnce(ctx, f)
		if listed {
			pause = minPause
		}
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-time.After(pause + rand.N(pause/2)):
		case <-ctx.Done():
		}
		if !listed {
			pause = min(2*pause, maxPause)
		}
	}
}

// followOnce lists, and watches until the watch ends or the credentials change. listed reports whether the API server
// returned the list.
func (i *Identity) followOnce(ctx context.Context, f followed) (listed bool, err error) {
	client, credentials, err := i.load()
	if err != nil {
		return false, err
	}
	listing, cancel := context.WithTimeout(ctx, RequestTimeout)
	version, err := f.list(listing, client)
	cancel()
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", f.what, err)
	}
	w, err := f.watch(ctx, client, metav1.ListOptions{
		ResourceVersion: version, TimeoutSeconds: ptr.To(int64((watchTime + rand.N(watchTime)).Seconds())),
	})
	if err == nil {
		err = i.take(ctx, w, f.take, credentials)
	}
	if err != nil {
		return true, fmt.Errorf("watching %s: %w", f.what, err)
	}
	return true, nil
}

// take uses the events of a watch until it ends or the credentials change.
func (i *Identity) take(ctx context.Context, w watch.Interface, take func(watch.Event), credentials []byte) error {
	defer w.Stop()
	reread := time.NewTicker(credentialsInterval)
	defer reread.Stop()
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if event.Type == watch.Error {
				return apierrors.FromObject(event.Object)
			}
			take(event)
		case <-reread.C:
			if now, err := ReadCredentials(i.kubeconfig); err == nil && !bytes.Equal(now, credentials) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}
