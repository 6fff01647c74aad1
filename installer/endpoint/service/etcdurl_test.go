package service

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/config"
	"airlift/installer/render"
	_ "airlift/scripts/fixtures/seed"
)

// TestEtcdURL: the agent asks etcd where the static pod of this host listens, for every address of the API server.
func TestEtcdURL(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		own := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(r, "IPv4")))
		if rapid.Bool().Draw(r, "IPv6") {
			own = netip.AddrFrom16([16]byte(append([]byte{0xfd}, rapid.SliceOfN(rapid.Byte(), 15, 15).Draw(r, "rest")...)))
		}
		c := &config.Config{Images: map[string]string{"etcd": "etcd"}, LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: own.String()}}
		c.KubernetesVersion, c.NodeRegistration.Name = "v1.37.1", "host1"
		c.CompleteInit()
		pod, err := render.Etcd(c)
		if err != nil {
			r.Fatal(err)
		}
		for _, arg := range pod.Spec.Containers[0].Command {
			if urls, ok := strings.CutPrefix(arg, "--listen-client-urls="); ok {
				if first, _, _ := strings.Cut(urls, ","); first != etcdURL(own) {
					r.Fatalf("the agent asks %s, and etcd listens at %s", etcdURL(own), urls)
				}
				return
			}
		}
		r.Fatalf("%q", pod.Spec.Containers[0].Command)
	})
}
