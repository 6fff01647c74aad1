package render

import (
	"fmt"
	"net/netip"
	"strings"
)

// flannelCNIScript writes the CNI configuration on nodes that the installer did not add, for
// example with kubeadm join: the same as CNIConflist, from flanneld's subnet file. It runs in
// flannel's image (busybox) after flanneld has started. It changes nothing if this node's
// configuration is already there, or if another file comes first by name: the runtime would use
// that file anyway. podSubnets give the order of the address families.
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
	conflist, err := conflistJSON(1, subnets)
	if err != nil {
		return "", err
	}
	return strings.NewReplacer(
		"SAME", strings.Join(same, " && "),
		// FLANNEL_MTU is always the MTU for vxlan over IPv4.
		"MORE", fmt.Sprint(headers-vxlanOverIPv4),
		"SETTINGS", strings.Replace(string(conflist), `"mtu": 1`, `"mtu": $mtu`, 1),
	).Replace(flannelCNITemplate), nil
}

// The kubelet creates /dev/termination-log each time it starts a container: an
// older subnet file may belong to another cluster. busybox compares whole seconds,
// and flanneld may be fast: a file from the same second counts as new.
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
chmod 600 "$conflist.tmp"
mv "$conflist.tmp" "$conflist"
`
