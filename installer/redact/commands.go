package redact

import (
	"path"
	"regexp"
	"strings"
)

// commandBegin matches what begins a row of variables or a command line in a text: the first group is
// there for variables, the second for a unit's command, the third for a client that takes passwords
// or for the path of a binary.
var commandBegin = regexp.MustCompile(`(?:^|[\s"'=(\[/:,;|\x60])(?:(Environment=["']?|(?:export|declare|readonly|typeset|env|-e|--env|\++)[\s"',=]+)|(Exec[A-Z][A-Za-z]*=\S+|COMMAND=\S+)|` +
	`((?:/[\w.-]+)+/s?bin/[\w.+-]+|(?:curl|wget|docker|podman|nerdctl|buildah|skopeo|oras|helm|crane|regctl|mysql\w*|mariadb[\w-]*|psql|pg_\w+|ldap\w+|sshpass|redis-cli|valkey-cli|mongo\w*|cqlsh|influx|sqlplus|sqlcmd|` +
	`rabbitmq\w*|kafka[\w.-]*|nats|mosquitto_\w+|smbclient|rpcclient|htpasswd|keytool|kinit|kadmin|vault|consul|aws|az|gcloud|rclone|restic|borg|s3cmd|ipmitool|snmp\w+|wpa_\w+|iscsiadm|useradd|usermod|chpasswd|svn|git|xh|` +
	`zip|unzip|7z\w*|cryptsetup|openssl|xfreerdp|plink|lftp|swaks|msmtp))[\s"',\\\x00])`)

// harmlessPrograms have options that nobody uses for secrets.
var harmlessPrograms = set(`iptables ip6tables iptables-save ip6tables-save iptables-restore ip6tables-restore xtables-nft-multi xtables-legacy-multi nft ip ipset conntrack tc modprobe mount umount systemd-run systemctl journalctl
	kubectl tar ls cat tail grep df du ps ss runc pause`)

var commandWord = regexp.MustCompile(`[^\s"',\\\[\]\x00]+`)

// commandWords limits how many words of a command are read.
const commandWords = 64

// commandSecret returns where the first word of a command line in a text begins that is not known to be
// harmless, or the value of such a variable; or -1.
func commandSecret(text string) int {
	for from := 0; from < len(text); {
		m := commandBegin.FindStringSubmatchIndex(text[from:])
		if m == nil {
			return -1
		}
		begin := from + m[1]
		rest := head(text[begin:])
		words := commandWord.FindAllStringIndex(rest, commandWords)
		at := -1
		switch {
		case m[2] >= 0:
			at, words = variableSecret(rest, words), nil
		case m[4] >= 0 || !harmlessPrograms[path.Base(text[from+m[6]:from+m[7]])]:
			at = argumentSecret(rest, words, m[4] >= 0)
		}
		if at >= 0 {
			return begin + at
		}
		from = begin
		if len(words) > 0 { // all of them were read
			from += words[len(words)-1][1]
		}
	}
	return -1
}

// variableSecret returns where the value of a variable begins that is not known to be harmless, or -1.
func variableSecret(text string, words [][]int) int {
	for _, w := range words {
		name, _, ok := strings.Cut(text[w[0]:w[1]], "=")
		value := w[0] + len(name) + 1
		switch {
		case strings.HasPrefix(name, "-"):
			continue
		case !ok:
			return -1
		case !harmlessVariables[name] && !argumentVariables[name] && !proxyVariables[name] && strings.TrimSpace(text[value:min(value+1, len(text))]) != "":
			return value
		}
	}
	return -1
}

// argumentSecret returns where an argument begins that is not known to be harmless, or -1. Before the
// first option of a command, except of a unit's, the words may be those of a sentence.
func argumentSecret(text string, words [][]int, isUnit bool) int {
	for !isUnit && len(words) > 0 && !option.MatchString(text[words[0][0]:words[0][1]]) {
		words = words[1:]
	}
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = text[w[0]:w[1]]
	}
	for i, kept := range Arguments(list, false) {
		if kept != list[i] && !plainWord.MatchString(list[i]) {
			return words[i][0]
		}
	}
	return -1
}

var (
	option    = regexp.MustCompile(`^--?[A-Za-z]`)
	plainWord = regexp.MustCompile(hostPath.String() + `|^https?://[\w.:/-]*$|^` + regexp.QuoteMeta(Marker))
)
