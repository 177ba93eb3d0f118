/* Prints the addresses that the C library finds for a name, one a line. It asks as most
 * programs do, for both families at once, or with -4 for one. With -r it does so that many
 * times, a millisecond apart. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *a;
	char text[64];
	int c, times = 1;

	while ((c = getopt(argc, argv, "4r:")) != -1)
		if (c == '4')
			hints.ai_family = AF_INET;
		else if (c == 'r')
			times = atoi(optarg);
		else
			return 1;
	if (optind != argc - 1) {
		fprintf(stderr, "usage: lookup [-4] [-r TIMES] NAME\n");
		return 1;
	}
	for (; times > 0; times--) {
		int err = getaddrinfo(argv[optind], "80", &hints, &list);
		if (err) {
			fprintf(stderr, "%s\n", gai_strerror(err));
			return 2; /* as getent does */
		}
		for (a = list; a; a = a->ai_next)
			if (!getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, 0, 0, NI_NUMERICHOST))
				puts(text);
		freeaddrinfo(list);
		usleep(1000);
	}
	return 0;
}
