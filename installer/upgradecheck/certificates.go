package upgradecheck

import (
	"time"

	"airlift/installer/preflight"
)

// endsSoon is when a certificate that an upgrade does not renew is reported.
const endsSoon = 30 * 24 * time.Hour

// certificates checks this host's certificates. The upgrade of a control plane renews the
// certificates that a CA on this host signs. An expired one is an error: components do not trust
// each other.
func (t *Target) certificates() (found []preflight.Problem) {
	for _, c := range t.Certificates {
		left := c.NotAfter.Sub(t.Now)
		switch {
		case c.Missing:
		case left <= 0 && c.Name == kubeletClient:
			found = append(found, preflight.Fail("on a control plane, create new credentials: ./install kubeconfig user; see ./install docs certificates", "%s expired on %s", c.File, c.NotAfter.Format(time.DateOnly))...)
		case left <= 0 && c.CA == "":
			found = append(found, preflight.Fail("replace the CA, see ./install docs certificates", "the CA %s expired on %s", c.File, c.NotAfter.Format(time.DateOnly))...)
		case left <= 0 && c.External:
			found = append(found, preflight.Fail("replace it with one from the external CA "+c.CA, "%s expired on %s, and the key of its CA is not on this host", c.File, c.NotAfter.Format(time.DateOnly))...)
		case left <= 0:
			found = append(found, preflight.Fail("./install certs renew "+c.Name+", then restart the control plane's static pods", "%s expired on %s", c.File, c.NotAfter.Format(time.DateOnly))...)
		case left > endsSoon:
		case c.CA == "":
			found = append(found, preflight.Warn("replace the CA soon, see ./install docs certificates", "the CA %s ends on %s; the upgrade does not renew it", c.File, c.NotAfter.Format(time.DateOnly))...)
		case c.External:
			found = append(found, preflight.Warn("replace it with one from the external CA "+c.CA, "%s ends on %s, and the key of its CA is not on this host: the upgrade does not renew it", c.File, c.NotAfter.Format(time.DateOnly))...)
		case c.Name == kubeletClient:
			found = append(found, preflight.Warn("check that the kubelet reaches the API server: journalctl -u kubelet", "%s ends on %s: the kubelet should have renewed it", c.File, c.NotAfter.Format(time.DateOnly))...)
		default:
			found = append(found, preflight.Warn("the upgrade of this control plane renews it", "%s ends on %s", c.File, c.NotAfter.Format(time.DateOnly))...)
		}
	}
	return found
}

// kubeletClient is the name of the kubelet's client certificate among Certificates.
const kubeletClient = "kubelet.conf"
