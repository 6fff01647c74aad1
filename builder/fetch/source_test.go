package fetch

import (
	"context"
	"io"
	"net/http"
	"slices"
	"testing"
)

// A fact from one list of mirrors is not used with another list.
func TestFactsBelongToTheirSource(t *testing.T) {
	cache, err := OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	through := func(list ...string) *Client { return New(cache, mirrorsOf(t, list...)) }
	if err := through("a=http://m/a", "b=https://m/b").Remember("key", "value"); err != nil {
		t.Fatal(err)
	}
	if got, ok := through("b=https://m/b", "a=http://m/a").Recall("key"); !ok || got != "value" {
		t.Errorf("the same mirrors in another order: %q, %v", got, ok)
	}
	for _, list := range [][]string{nil, {"a=http://m/a"}, {"a=https://m/a", "b=https://m/b"}, {"a=http://m/b", "b=https://m/a"}} {
		if got, ok := through(list...).Recall("key"); ok {
			t.Errorf("%v: recalled %q", list, got)
		}
	}
}

func TestSourceNamesEveryoneWhoHadAPart(t *testing.T) {
	var s *site
	s = serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/dl/file":
			http.Redirect(w, r, "https://cdn.example/file?signed=now", http.StatusFound)
		case "/cdn/file":
			http.Redirect(w, r, s.URL+"/elsewhere", http.StatusFound)
		default:
			io.WriteString(w, "text")
		}
	})
	cache, err := OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := New(cache, mirrorsOf(t, "dl.example="+s.URL+"/dl", "cdn.example="+s.URL+"/cdn"))
	_, got, err := c.Text(context.Background(), "https://dl.example/file")
	if err != nil {
		t.Fatal(err)
	}
	want := Source{Site: s.URL + "/dl", URL: s.URL + "/dl/file", Redirects: []string{s.URL + "/cdn", s.URL}}
	if got.Site != want.Site || got.URL != want.URL || !slices.Equal(got.Redirects, want.Redirects) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A download that another site began is not continued: its bytes may be different.
func TestPartialFilesBelongToTheirSource(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	bad := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			cut(w, 0, 300_000)
		}
		cancel()
		<-r.Context().Done()
	})
	good := serve(t, func(n int, w http.ResponseWriter, r *http.Request) { whole(w, r) })
	c := newClient(t)
	if _, err := get(ctx, c, bad.URL, sum(content)); err == nil {
		t.Fatal("no error")
	}
	g, err := get(context.Background(), c, good.URL, sum(content))
	if err != nil {
		t.Fatal(err)
	}
	wantWhole(t, c, g)
	if got := good.asked(); !slices.Equal(got, []string{""}) {
		t.Errorf("ranges asked for: %q", got)
	}
}
