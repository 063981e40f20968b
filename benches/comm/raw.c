// The same exchanges in C: with MPI's blocking calls, and with the calls that do not block and a wait for each, as
// `anabranch` makes them. Prints "name bytes ns", one exchange each, from rank 0.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank;

static void report(const char *name, long bytes, double seconds, long exchanges) {
    if (rank == 0) printf("%s %ld %.1f\n", name, bytes, 1e9 * seconds / exchanges);
}

static void send(int blocks, void *out, long bytes) {
    MPI_Request request;
    if (blocks) {
        MPI_Send(out, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
        return;
    }
    MPI_Isend(out, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void receive(int blocks, void *in, long bytes) {
    MPI_Request request;
    if (blocks) {
        MPI_Recv(in, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    MPI_Irecv(in, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void reduce(int blocks, void *out, void *in, long bytes) {
    MPI_Request request;
    int count = bytes / sizeof(double);
    if (blocks) {
        MPI_Allreduce(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        return;
    }
    MPI_Iallreduce(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int at = 1; at + 1 < argc; at += 2) {
        long bytes = atol(argv[at]), rounds = atol(argv[at + 1]);
        void *out = malloc(bytes), *in = malloc(bytes);
        memset(out, 1, bytes);
        memset(in, 1, bytes);
        for (int blocks = 0; blocks < 2; blocks++) {
            double begin = 0;
            for (long round = -rounds / 10 - 1; round < rounds; round++) {
                if (round == 0) {
                    MPI_Barrier(MPI_COMM_WORLD);
                    begin = MPI_Wtime();
                }
                if (rank == 0) {
                    send(blocks, out, bytes);
                    receive(blocks, in, bytes);
                } else {
                    receive(blocks, in, bytes);
                    send(blocks, out, bytes);
                }
            }
            report(blocks ? "ping-pong-blocking" : "ping-pong", bytes, MPI_Wtime() - begin, 2 * rounds);
            for (long round = -rounds / 10 - 1; round < rounds; round++) {
                if (round == 0) {
                    MPI_Barrier(MPI_COMM_WORLD);
                    begin = MPI_Wtime();
                }
                reduce(blocks, out, in, bytes);
            }
            report(blocks ? "all-reduce-blocking" : "all-reduce", bytes, MPI_Wtime() - begin, rounds);
        }
        free(out);
        free(in);
    }
    MPI_Finalize();
    return 0;
}
