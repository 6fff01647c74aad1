#!/bin/sh
# Finds the drive with the seed, checks the installer on it, and lets the installer do the rest. This script writes only below /run.
# bundle seed wrote it; docs/seed.md has the layout of a drive.
set -u
sha256='@SHA256@'
drive='@DRIVE@'
mounts=/run/airlift-seed

say() { echo "airlift seed: $*"; }
end() { for at in "$mounts"/*; do umount -l "$at" 2>/dev/null; rmdir "$at" 2>/dev/null; done; }

if [ -x '@COPY@/@INSTALLER@' ]; then # this host is in the seed, and was interrupted
	exec '@COPY@/@INSTALLER@' seed run
fi

# look sets found to the directories with a seed.
look() {
	found= count=0 where=
	case $drive in
	/*)
		[ -f "$drive/@FILE@" ] && found=$drive count=1
		return
		;;
	esac
	for label in $drive; do
		for device in $(blkid -c /dev/null -o device -t "LABEL=$label"); do
			at=$mounts/${device##*/}
			mkdir -p "$at"
			mountpoint -q "$at" || mount -o ro,nodev,nosuid "$device" "$at" || continue
			if [ -f "$at/@FILE@" ]; then
				found=$at count=$((count + 1)) where="$where $device"
			else
				umount "$at" && rmdir "$at"
			fi
		done
	done
}

trap end EXIT
trap 'exit 130' TERM INT
tries=0
while :; do
	look
	[ "$count" -eq 1 ] && break
	if [ $((tries % 30)) -eq 0 ]; then # once a minute
		if [ "$count" -gt 1 ]; then
			say "$count drives have a seed:$where. Nothing was changed. Remove all but one."
		else
			say "waiting for a drive with @FILE@ ($drive)"
		fi
	fi
	tries=$((tries + 1))
	end
	sleep 2
done

if ! echo "$sha256  $found/@INSTALLER@" | sha256sum -c >/dev/null 2>&1; then
	say "$found/@INSTALLER@ is not the file with the sha256 $sha256 that this host trusts. Nothing was changed."
	exit 4
fi
"$found/@INSTALLER@" seed run "$found" &
child=$!
trap 'kill "$child" 2>/dev/null; wait "$child"; exit 130' TERM INT
wait "$child"
