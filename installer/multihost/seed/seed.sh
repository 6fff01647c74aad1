#!/bin/sh
# Finds the drive with the seed, checks what starts the installer on it, and starts the installer. This script writes only below
# /run. bundle seed wrote it; docs/seed.md has the layout of a drive.
set -u
# What starts the installer: the first and the last bytes of the file, and the sha256 of both together. They have the digests of the rest.
first=@FIRST@ last=@LAST@ sha256='@SHA256@'
drive='@DRIVE@'
mounts=/run/airlift-seed start=/run/airlift-seed/start

say() { echo "airlift seed: $*"; }
end() { for at in "$mounts"/*; do while umount -l "$at" 2>/dev/null; do :; done; rmdir "$at" 2>/dev/null; done; }

end # a script that was killed left its mounts

if [ -x '@COPY@/@INSTALLER@' ] && [ -f '@RECORD@' ]; then # this host is in the seed, and was interrupted
	exec '@COPY@/@INSTALLER@' seed run
fi

# look sets found to a directory with a seed, and count to the number of different seeds. The kernel may show one drive twice: an ISO image as a
# disk and as its partition, a disk by two paths.
look() {
	found= count=0 where= failed= seeds=' '
	case $drive in
	/*)
		[ -f "$drive/@FILE@" ] && found=$drive count=1
		return
		;;
	esac
	for label in $drive; do
		for device in $(blkid -c /dev/null -o device -t "LABEL=$label"); do
			at=$mounts/drive-${device##*/}
			mkdir -p "$at"
			if ! mountpoint -q "$at" && ! error=$(mount -o ro,nodev,nosuid "$device" "$at" 2>&1); then
				failed="$failed; $error"
				continue
			fi
			if ! sum=$(cat "$at/@FILE@" 2>/dev/null | sha256sum) || [ ! -f "$at/@FILE@" ]; then
				umount "$at" && rmdir "$at"
				continue
			fi
			where="$where $device"
			case $seeds in
			*" ${sum%% *} "*) ;;
			*) found=$at count=$((count + 1)) seeds="$seeds${sum%% *} " ;;
			esac
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
			say "$count drives have different seeds:$where. Nothing was changed. Remove all but one."
		else
			say "waiting for a drive with @FILE@ ($drive)$failed"
		fi
	fi
	tries=$((tries + 1))
	end
	sleep 2
done

# What is checked is what runs: a copy in memory that no drive can change. /run itself may be mounted noexec.
mkdir -p "$start" && mount -t tmpfs -o mode=0700,nodev,nosuid tmpfs "$start" || exit 1
{ head -c "$first" "$found/@INSTALLER@" && tail -c "$last" "$found/@INSTALLER@"; } >"$start/@INSTALLER@"
if ! echo "$sha256  $start/@INSTALLER@" | sha256sum -c >/dev/null 2>&1; then
	say "$found/@INSTALLER@ is not the file that this host trusts: what starts it has not the sha256 $sha256. Nothing was changed."
	exit 4
fi
chmod 0700 "$start/@INSTALLER@"
"$start/@INSTALLER@" seed run "$found" &
child=$!
trap 'kill "$child" 2>/dev/null; wait "$child"; exit 130' TERM INT
wait "$child"
