package render

import (
	"fmt"
	"net/netip"
	"strings"
)

// flannelCNIScript writes the CNI settings on nodes that the installer did not
// add, such as one that came with kubeadm join: what CNIConflist would say for
// them, from what flanneld finds out. It runs in flannel's image (busybox) when
// flanneld has been started, and changes nothing where the settings are those
// of this node already, or where other settings come first by name, which the
// runtime would take anyway. podSubnets give the order of the address families.
func flannelCNIScript(podSubnets []netip.Prefix) (string, error) {
	headers := vxlanOverIPv4
	var subnets, same []string
	for _, prefix := range podSubnets {
		subnet := "$ipv4"
		if prefix.Addr().Is6() {
			subnet, headers = "$ipv6", vxlanOverIPv6
		}
		subnets = append(subnets, subnet)
		same = append(same, fmt.Sprintf(`grep -qsF "\"%s\"" "$conflist"`, subnet))
	}
	settings, err := conflistJSON(1, subnets)
	if err != nil {
		return "", err
	}
	return strings.NewReplacer(
		"SAME", strings.Join(same, " && "),
		// flanneld always takes off what IPv4 needs.
		"MORE", fmt.Sprint(headers-vxlanOverIPv4),
		"SETTINGS", strings.Replace(string(settings), `"mtu": 1`, `"mtu": $mtu`, 1),
	).Replace(flannelCNITemplate), nil
}

// The kubelet makes /dev/termination-log anew each time it starts a container:
// a subnet file that is older may be of another cluster. busybox compares whole
// seconds, and flanneld can be that fast: a file of the same second counts as new.
const flannelCNITemplate = `set -eu
conflist=/etc/cni/net.d/10-flannel.conflist
subnet_file=/run/flannel/subnet.env
for file in /etc/cni/net.d/*.conf /etc/cni/net.d/*.conflist /etc/cni/net.d/*.json; do
  if [ -e "$file" ] && expr "$file" '<' "$conflist" >/dev/null; then exit 0; fi
done
tries=60
until [ -e "$subnet_file" ] && ! [ "$subnet_file" -ot /dev/termination-log ]; do
  tries=$((tries - 1))
  if [ "$tries" -lt 0 ]; then
    if [ -e "$conflist" ]; then exit 0; fi
    echo "flanneld has no subnet for this node yet" >&2
    exit 1
  fi
  sleep 1
done
. "$subnet_file"
# flanneld names the first address of a subnet: 10.244.3.1/24, fd00:3::1/64.
ipv4= ipv6=
if [ -n "${FLANNEL_SUBNET:-}" ]; then
  ip=${FLANNEL_SUBNET%/*}
  ipv4=${ip%.*}.$((${ip##*.} - 1))/${FLANNEL_SUBNET#*/}
fi
if [ -n "${FLANNEL_IPV6_SUBNET:-}" ]; then
  ip=${FLANNEL_IPV6_SUBNET%/*}
  last=$(printf %x $((0x${ip##*:} - 1)))
  case $ip in *::1) last= ;; esac
  ipv6=${ip%:*}:$last/${FLANNEL_IPV6_SUBNET#*/}
fi
if SAME; then exit 0; fi
mtu=$((FLANNEL_MTU - MORE))
cat >"$conflist.tmp" <<END
SETTINGSEND
chmod 644 "$conflist.tmp"
mv "$conflist.tmp" "$conflist"
`
