package output

import (
	"fmt"
	"strings"
	"testing"
)

func TestKeep(t *testing.T) {
	var out strings.Builder
	text := Text{Name: Name{Here: "airlift", There: "./airlift"}, Given: &Given{}, Out: &out}
	fmt.Fprintln(text, "./install cluster apply")
	Keep(&events{below: text}, []string{"./install cluster apply", "./install cluster certs renew"}, " -f b.yaml")
	fmt.Fprintln(text, "leave it out: ./install cluster apply --skip w1; ./install cluster applying, './install cluster certs renew'")
	fmt.Fprintln(Documents(text), `{"command": "./install cluster apply"}`)
	const want = "airlift cluster apply\n" +
		"leave it out: airlift cluster apply -f b.yaml --skip w1; airlift cluster applying, 'airlift cluster certs renew -f b.yaml'\n" +
		`{"command": "airlift cluster apply -f b.yaml"}` + "\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	Keep(&out, nil, " -x") // an output without names
}
