package cluster

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Behind a virtual address that has left this host, a connection stays open, and nothing comes from it. A request reads over another
// one, within its time limit.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"`+r.Proto+`"}}]}`)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var dead, accepted atomic.Int32 // connections up to this number lead nowhere
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			number := accepted.Add(1)
			to, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				return
			}
			forward := func(from, to net.Conn) {
				data := make([]byte, 4096)
				for {
					n, err := from.Read(data)
					if number > dead.Load() {
						_, _ = to.Write(data[:n])
					}
					if err != nil {
						_ = to.Close()
						return
					}
				}
			}
			go forward(c, to)
			go forward(to, c)
		}
	}()
	c, err := fromREST(&rest.Config{Host: "https://" + l.Addr().String(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int32{1, 1, 2} {
		if want == 2 {
			dead.Store(1)
		}
		nodes, err := c.API.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(nodes.Items) != 1 || nodes.Items[0].Name != "HTTP/2.0" || accepted.Load() != want {
			t.Errorf("%v over %d connections, want %d", nodes.Items, accepted.Load(), want)
		}
	}
}
