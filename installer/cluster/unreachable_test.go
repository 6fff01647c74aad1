package cluster

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/cluster/wait"
	"airlift/internal/dialer"
	"airlift/internal/fault"
)

// TestUnreachableHasAHint: whatever a command reads first from an API server that is down, its error has a hint.
func TestUnreachableHasAHint(t *testing.T) {
	root, _ := issue(t, nil, metav1.Now().Time, metav1.Now().AddDate(1, 0, 0), "ca").pem(t)
	kubeconfig, err := clientcmd.Load(kubeconfigOf("https://192.0.2.1:6443", root, ""))
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig.AuthInfos = nil
	for _, down := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, os.ErrDeadlineExceeded} {
		for first, read := range map[string]func(context.Context, *Client) error{
			"configuration": func(ctx context.Context, c *Client) error { _, err := c.FetchConfig(ctx); return err },
			"registry":      func(ctx context.Context, c *Client) error { _, err := c.Registry(ctx); return err },
			"nodes":         func(ctx context.Context, c *Client) error { _, err := c.Nodes(ctx); return err },
			"version":       func(ctx context.Context, c *Client) error { _, err := c.Version(ctx); return err },
			"one attempt":   func(ctx context.Context, c *Client) error { return c.Reach(ctx) },
			"without retries": func(ctx context.Context, c *Client) error {
				_, err := c.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
				return err
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				ctx := dialer.With(t.Context(), func(context.Context, string, string) (net.Conn, error) {
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: down}
				})
				client, err := fromConfig(kubeconfig, "")
				if err != nil {
					t.Fatal(err)
				}
				if err = read(ctx, client); !errors.Is(err, down) || fault.Hint(err) != wait.APIServerHint {
					t.Errorf("%s: %v: hint %q", first, err, fault.Hint(err))
				}
			})
		}
	}
}
